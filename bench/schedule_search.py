#!/usr/bin/env python3
"""Prints the table of docs/schedule_search.md: the schedules that `auto` finds for the pipelines
of table 5 of Qi et al. 2023 (arXiv 2401.10241), with the paper's rates and the lower bounds.

    python3 bench/schedule_search.py [--program build/release/trident] [--time-limit S]
"""

import argparse
import json
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# p, m, F, B, W, C in microseconds; rates of ZB-1p and ZB-2p; heads and hidden size (sequence 1024).
ROWS = [(8, 24, 18522, 18086, 9337, 601, .1585, .0433, 24, 2304),
        (8, 32, 18513, 18086, 9331, 626, .1242, .0039, 24, 2304),
        (8, 64, 18546, 18097, 9321, 762, .0674, .0026, 24, 2304),
        (8, 24, 29718, 29444, 19927, 527, .1323, .0029, 32, 4096),
        (8, 32, 29802, 29428, 19530, 577, .1045, .0022, 32, 4096),
        (8, 64, 29935, 29621, 19388, 535, .0554, .0010, 32, 4096),
        (16, 48, 11347, 11248, 8132, 377, .1397, .0066, 40, 5120),
        (16, 64, 11307, 11254, 8101, 379, .1088, .0054, 40, 5120),
        (16, 128, 11325, 11308, 8109, 378, .0576, .0028, 40, 5120),
        (32, 96, 10419, 10207, 7715, 408, .1421, .0038, 48, 6144),
        (32, 128, 10408, 10204, 7703, 408, .1106, .0029, 48, 6144),
        (32, 256, 10402, 10248, 7698, 460, .0594, .0018, 48, 6144)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build/release/trident")
    parser.add_argument("--time-limit", default="0")
    options = parser.parse_args()
    print("| p | m | memory | published | found | lower bound | bound, all held until W | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for p, m, f, b, w, c, one, two, heads, hidden in ROWS:
        kept = 32 * hidden / (34 * hidden + 5 * heads * 1024)
        for factor, published in ((1, one), (2, two)):
            def search(kept_for_weights):
                run = subprocess.run(
                    [options.program, "schedule", "--kind", "auto", "--chunks", "1", "--stages",
                     str(p), "--microbatches", str(m), "--times", f"F={f},B={b},W={w},C={c}",
                     "--max-in-flight", str(factor * p), "--kept-for-weights",
                     str(kept_for_weights), "--objective", "span", "--time-limit",
                     options.time_limit, "--format", "json"],
                    capture_output=True, text=True, check=True)
                return json.loads(run.stdout)
            begun = time.time()
            found = search(kept)
            seconds = time.time() - begun
            whole = search(1)
            print(f"| {p} | {m} | {factor}p | {published:.4f} "
                  f"| {found['simulated']['bubble_ratio_span']:.4f} "
                  f"| {found['lower_bound']['bubble_ratio_span']:.4f} "
                  f"| {whole['lower_bound']['bubble_ratio_span']:.4f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
