#!/usr/bin/env python3
"""Compares the predictions of `simulate` with this machine: three models in several layouts each.

    python3 bench/predictions.py build/release/trident --out /tmp/predictions --rounds 6

In each round every model's kernels are measured and its layouts run (`sweep --measure`). Constants are
fitted to the first model and judged on the others. It takes half an hour on two otherwise idle cores;
started again, it resumes. Ends with a table in Markdown.
"""

import argparse
import json
import pathlib
import subprocess


def config(architecture, layers, hidden, heads, batch, **more):
    return {"model": {"architecture": architecture, "num_layers": layers, "hidden_size": hidden,
                      "num_attention_heads": heads, "vocab_size": 256, **more},
            "batch": {"global_batch_size": batch, "micro_batch_size": 1},
            "data": {"train": [{"path": "text.txt"}], "sequence_length": 128},
            "training": {"train_iters": 3}, "runtime": {"threads_per_rank": 1}}


MODELS = {
    "gpt": (config("gpt2", 8, 256, 8, 8), "tp=1,2 pp=1,2,4 dp=1,2 micro_batch_size=2"),
    "llama": (config("llama", 8, 192, 6, 8, num_query_groups=2, ffn_hidden_size=512),
              "tp=1,2 pp=1,2 dp=1,2 micro_batch_size=2 zero=0,1"),
    "wide": (config("gpt2", 4, 512, 8, 4), "tp=1,2 pp=1,2 dp=1,2 micro_batch_size=1,2")}


class Bench:
    def __init__(self, program, folder, rounds):
        self.program, self.folder, self.rounds = program, folder, rounds
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "text.txt").write_text("In the beginning was the word, and it was good. " * 20000)
        for name, (model, _) in MODELS.items():
            (folder / f"{name}.json").write_text(json.dumps(model))

    def sweep(self, name, rounds, *arguments):
        subprocess.run([self.program, "sweep", f"{name}.json", "--grid", MODELS[name][1], "--out",
                        f"sweep_{name}", "--iterations", "5", "--warm-up", "1", "--repeats",
                        str(rounds), *arguments], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        return json.loads((self.folder / f"sweep_{name}/sweep.json").read_text())

    def measure(self):
        for done in range(1, self.rounds + 1):
            for name in MODELS:
                self.sweep(name, done, "--measure", f"{name}_machine.json")
            print(f"round {done} of {self.rounds}", flush=True)

    def judge(self):
        """For each model: the sweep with measured constants, and with the constants fitted to the
        first model."""
        results, efficiency = {}, None
        for name in MODELS:
            machine = json.loads((self.folder / f"{name}_machine.json").read_text())
            plain = self.sweep(name, self.rounds, "--machine", f"./{name}_machine.json")
            fitted = f"{name}_fitted.json"
            if efficiency is None:
                told = self.sweep(name, self.rounds, "--machine", f"./{name}_machine.json", "--fit",
                                  fitted)
                efficiency = json.loads((self.folder / fitted).read_text())["efficiency"]
            else:
                machine["efficiency"] = efficiency
                (self.folder / fitted).write_text(json.dumps(machine))
                told = self.sweep(name, self.rounds, "--machine", f"./{fitted}")
            results[name] = (plain, told)
        return results, efficiency


def row(name, sweep):
    told = sweep["agreement"]
    memory = max(abs(p["peak_memory"] / p["planned_memory"] - 1) for p in sweep["points"])
    return (f"| {name} | {told['points']} | {100 * told['median_error']:.1f}% | "
            f"{100 * told['ninth_decile']:.1f}% | {told['order']:.3f} | "
            f"{100 * told['choice']:.1f}% | {100 * told['noise']:.1f}% | {100 * memory:.2f}% |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    bench = Bench(options.program, options.out, options.rounds)
    bench.measure()
    results, efficiency = bench.judge()
    print("| | points | off, median | off, 90th percentile | order | choice over the best | noise | "
          "memory off |\n|---|---|---|---|---|---|---|---|")
    for name, (plain, told) in results.items():
        print(row(name + ", as measured", plain))
        print(row(name + (", fitted to it" if name == "gpt" else ", fitted to gpt"), told))
    print(f"\nconstants fitted to gpt: {efficiency}")
    for what, at in (("as measured", 0), ("fitted", 1)):
        errors = sorted(abs(p["predicted_ms"] / p["compared_ms"] - 1)
                        for both in results.values() for p in both[at]["points"])
        print(f"all {len(errors)}, {what}: off by {100 * errors[len(errors) // 2]:.1f}% (median), "
              f"{100 * errors[int(0.9 * len(errors))]:.1f}% (90th percentile)")


if __name__ == "__main__":
    main()
