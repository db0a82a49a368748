#!/usr/bin/env python3
"""Compares a training step on one GPU in Trident and in PyTorch (bench/gpu_step.py), in turns.

    bench/compare_gpu.py --program PROGRAM [--config configs/gpu/gpt2_124m.json] [--rounds N]
        [--steps N] [--seconds N] [--out FILE]

Each measurement is a process of its own. Figures are medians over the rounds. No round begins that
might end after --seconds. The ratio is Trident's tokens/s over the best of PyTorch's ways. MFU
is Trident's: model FLOPs over the peak that the GPU's maker states, else over the measured rate of
products; PyTorch's is the same FLOPs over its own time. Prints a table, or JSON (--format json);
--out has that JSON after each measurement. "late" marks a way that only lacked time.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def measure(command, limit):
    """The JSON object that a command prints last, or {"error", "late"}."""
    # Output goes to files instead of pipes, as PyTorch's workers may hold pipes open after the
    # program ends.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen([str(c) for c in command], stdout=output, stderr=errors,
                                 start_new_session=True)
        try:
            child.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            return {"error": f"longer than {limit:.0f} s", "late": True}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # and all processes that it started
            child.wait()
            errors.seek(0)
            told = errors.read()
            sys.stderr.writelines(line + "\n" for line in told.splitlines()
                                  if line.startswith("trident cuda:"))
            sys.stderr.flush()
        output.seek(0)
        text = output.read()
    if child.returncode or "{" not in text:
        lines = told.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit code {child.returncode}", "late": False}
    return json.loads(text[text.index("{"):])


def summary(config, tokens, runs):
    """The results of the measurements so far; `runs` has the runs of each way."""
    found = {"config": config, "tokens_a_step": tokens, "ways": {}, "versions": {}}
    flops = None
    for name, results in runs.items():
        good = [run for run in results if "error" not in run]
        bad = [run for run in results if "error" in run]
        for run in good:
            found["versions"].update(run.get("versions", {}))
        # A failure in a later round discards a way. A time-out in a later round doesn't.
        if not good or not all(run["late"] for run in bad):
            found["ways"][name] = bad[-1] if bad else {"error": "no time left", "late": True}
            continue
        speeds = [1e3 * tokens / run["milliseconds"] for run in good]
        way = {"tokens_per_second": statistics.median(speeds), "least": min(speeds),
               "most": max(speeds), "rounds": len(speeds)}
        if name == "trident":
            way["peak_bytes"] = good[0]["ledger"]["largest_rank"]["total"]
            way["mfu"] = statistics.median(run["mfu"] for run in good)
            found["device"] = good[0]["device"]
            flops = way["mfu"] / way["tokens_per_second"]
        else:
            way["peak_bytes"] = good[0]["peak_bytes"]
            way["mfu"] = flops and flops * way["tokens_per_second"]
            way["sdpa"] = good[0].get("sdpa")
        found["ways"][name] = way
    speed = {name: way["tokens_per_second"] for name, way in found["ways"].items()
             if "error" not in way}
    peers = [value for name, value in speed.items() if name != "trident"]
    if "trident" in speed and peers:
        found["ratio"] = speed["trident"] / max(peers)
    return found


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
            if arguments.out:
                temporary = arguments.out.with_name(arguments.out.name + ".new")
                temporary.write_text(json.dumps(summary(arguments.config.stem, tokens, runs)))
                temporary.rename(arguments.out)
        longest = max(longest, time.monotonic() - began)
    return summary(arguments.config.stem, tokens, runs)


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
    if found["versions"]:
        lines.append(", ".join(f"{name} {value}" for name, value in found["versions"].items()))
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
    parser.add_argument("--out", type=pathlib.Path, help="what is known after each measurement")
    arguments = parser.parse_args()
    # Processes in their own sessions outlive this one unless it ends them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = compare(arguments)
    print(json.dumps(found) if arguments.format == "json" else text_of(found))
    sys.exit("error" in found["ways"]["trident"])


if __name__ == "__main__":
    main()
