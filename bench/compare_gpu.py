#!/usr/bin/env python3
"""A training step on one GPU in Trident and in PyTorch (bench/gpu_step.py), in turns.

    bench/compare_gpu.py --program PROGRAM [--config configs/gpu/gpt2_124m.json] [--rounds N]
        [--steps N] [--seconds N]

Each measurement is a process of its own; figures are medians over the rounds, of which none begins
that might end after --seconds. The ratio is Trident's tokens/s over the best of PyTorch's ways. MFU
is Trident's: model FLOPs over the peak that the GPU's maker states, else over the measured rate of
products; PyTorch's is the same FLOPs over its own time. Prints a table, or JSON (--format json).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def measure(command, limit):
    """The JSON object that a command prints last, or {"error"}."""
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                              timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"longer than {limit:.0f} s"}
    sys.stderr.writelines(line + "\n" for line in done.stderr.splitlines()
                          if line.startswith("trident cuda:"))
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"error": lines[-1]}
    return json.loads(done.stdout[done.stdout.index("{"):])


def compare(arguments):
    config = json.loads(arguments.config.read_text())
    tokens = config["batch"]["global_batch_size"] * config["data"]["sequence_length"]
    ways = {"trident": [arguments.program, "bench", "step", arguments.config, "--format", "json",
                        "--iterations", arguments.steps, "--set", "runtime.transport=local",
                        *[word for s in arguments.set for word in ("--set", s)]]}
    for kind in arguments.kinds.split(","):
        ways[f"pytorch {kind}"] = [arguments.python, ROOT / "bench/gpu_step.py", "--config",
                                   arguments.config, "--kind", kind, "--steps", arguments.steps,
                                   *arguments.pytorch]
    start, longest = time.monotonic(), 0
    runs = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        began = time.monotonic()
        if longest and began + longest > start + arguments.seconds:
            break
        for name, command in ways.items():
            left = start + arguments.seconds - time.monotonic()
            if left > 0 and not any("error" in run for run in runs[name]):
                runs[name].append(measure(command, left))
        longest = max(longest, time.monotonic() - began)
    found = {"config": arguments.config.stem, "tokens_a_step": tokens, "ways": {}}
    flops = None
    for name, results in runs.items():
        errors = [run["error"] for run in results if "error" in run]
        if errors or not results:
            found["ways"][name] = {"error": errors[0] if errors else "no time left"}
            continue
        speeds = [1e3 * tokens / run["milliseconds"] for run in results]
        way = {"tokens_per_second": statistics.median(speeds), "least": min(speeds),
               "most": max(speeds), "rounds": len(speeds)}
        if name == "trident":
            way["peak_bytes"] = results[0]["ledger"]["largest_rank"]["total"]
            way["mfu"] = statistics.median(run["mfu"] for run in results)
            found["device"] = results[0]["device"]
            flops = way["mfu"] / way["tokens_per_second"]
        else:
            way["peak_bytes"] = results[0]["peak_bytes"]
            way["mfu"] = flops and flops * way["tokens_per_second"]
        found["ways"][name] = way
    speed = {name: way["tokens_per_second"] for name, way in found["ways"].items()
             if "error" not in way}
    peers = [value for name, value in speed.items() if name != "trident"]
    if "trident" in speed and peers:
        found["ratio"] = speed["trident"] / max(peers)
    return found


def text_of(found):
    lines = [f"{found['config']}, {found['tokens_a_step']} tokens a step",
             f"{'':20}{'tokens/s':>12}{'min':>12}{'max':>12}{'MFU':>8}{'peak GB':>9}"]
    for name, way in found["ways"].items():
        if "error" in way:
            lines.append(f"{name:20}failed: {way['error'][:160]}")
            continue
        mfu = f"{way['mfu']:8.3f}" if way["mfu"] else f"{'':8}"
        lines.append(f"{name:20}{way['tokens_per_second']:12.0f}{way['least']:12.0f}"
                     f"{way['most']:12.0f}{mfu}{way['peak_bytes'] / 1e9:9.2f}")
    if "ratio" in found:
        lines.append(f"ratio trident / best pytorch: {found['ratio']:.3f}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    parser.add_argument("--config", type=pathlib.Path, default=ROOT / "configs/gpu/gpt2_124m.json")
    parser.add_argument("--kinds", default="bf16,autocast", help="PyTorch's ways")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=460)
    parser.add_argument("--set", action="append", default=[], help="key=value for Trident")
    parser.add_argument("--pytorch", action="append", default=[], help="a flag for PyTorch's side")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    found = compare(arguments)
    print(json.dumps(found) if arguments.format == "json" else text_of(found))
    sys.exit("error" in found["ways"]["trident"])


if __name__ == "__main__":
    main()
