#!/usr/bin/env python3
"""Counts the instructions of a small training step on the AVX2 path with callgrind.

    python bench/count_instructions.py [--update]

Valgrind hides AVX-512, so every machine takes the same path and repeats the figure whatever its
load. Only another compiler, library or change of ours moves it. The figure is half the difference
between a run of three steps and a run of one step, so it excludes the start and the first step (plans
of products, pages). `--update` stores the figures in bench/instructions.json; otherwise they are
printed with the stored ones. The step is small (2 layers of width 128, 256 tokens) because valgrind emulates every
fused multiply-add in software. Takes minutes.
"""

import argparse
import json
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "bench/instructions.json"


def version(*command):
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return lines[0].strip() if lines else "?"


def count(program, dtype, steps):
    """{function: instructions} of a whole run."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(program), dtype,
                   str(steps)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            sys.exit(f"exit {run.returncode}: {' '.join(command)}\n{run.stderr[-2000:]}")
        table = subprocess.run(["callgrind_annotate", "--threshold=100", out], capture_output=True,
                               text=True, check=True).stdout
    functions = {}
    for line in table.splitlines():
        if match := re.match(r"\s*([\d,]+) \([ \d.]+%\)\s+(?:\S+?:)?(.+?)$", line):
            # Generated code has no name but an address, which differs in each run.
            name = "oneDNN's generated code" if "[???]" in match.group(2) else match.group(2)
            functions[name] = functions.get(name, 0) + int(match.group(1).replace(",", ""))
    return functions


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path,
                        default=ROOT / "build/release/bench/small_step")
    parser.add_argument("--update", action="store_true", help="keep these figures")
    arguments = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    result = {"system": platform.freedesktop_os_release().get("PRETTY_NAME", "?"),
              "compiler": version("c++", "--version"), "valgrind": version("valgrind", "--version"),
              "instructions_per_step": {}}
    for dtype in ("fp32", "bf16"):
        one, three = (count(arguments.program, dtype, steps) for steps in (1, 3))
        step = {name: (n - one.get(name, 0)) / 2 for name, n in three.items()}
        total = round(step.pop("PROGRAM TOTALS"))
        result["instructions_per_step"][dtype] = total
        before = kept.get("instructions_per_step", {}).get(dtype)
        beside = f", kept {before:,}: ratio {total / before:.4f}" if before else ""
        print(f"{dtype}: {total:,} instructions a step{beside}")
        for name, n in sorted(step.items(), key=lambda item: -item[1])[:12]:
            print(f"  {100 * n / total:5.1f}%  {name[:110]}", flush=True)
    if arguments.update:
        KEPT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
