#!/usr/bin/env python3
"""Compares ZeRO's stages in Trident and in DeepSpeed on this machine.

    $(scripts/peers_python) bench/compare_zero.py [--config FILE] [--dtype fp32] [--stages 0,1,2,3]
        [--micro-batch N] [--micro-batches N] [--sequence N] [--rounds N] [--steps N] [--alone]

Two data-parallel ranks of one thread each train on random tokens; one step is forward, backward,
clipping and AdamW (bf16 keeps fp32 masters). Every measurement is a process (DeepSpeed: one per
rank, bench/deepspeed_step.py) of its own, the programs and stages take turns, and each figure is
the median over the rounds. Memory is the peak resident size a rank: DeepSpeed's largest process,
Trident's process over its two ranks. --alone leaves DeepSpeed out. "of stage 0" compares Trident's
speeds round by round.
"""

import argparse
import importlib.metadata
import pathlib
import statistics
import sys

from side_by_side import (CONFIG, PROGRAM, ROOT, SPEED_TITLES, failure_of, in_turns, machine,
                          run_ranks, speed_columns, step_command)

RANKS = 2


def trident(arguments, stage):
    settings = {"precision.dtype": arguments.dtype, "parallel.data_parallel_size": RANKS,
                "parallel.tensor_model_parallel_size": 1,
                "parallel.pipeline_model_parallel_size": 1,
                "batch.micro_batch_size": arguments.micro_batch,
                "batch.global_batch_size":
                    arguments.micro_batch * arguments.micro_batches * RANKS,
                "data.sequence_length": arguments.sequence, "gradient_clipping": 1,
                "runtime.threads_per_rank": 1, "runtime.transport": "local",
                "zero_optimization.stage": stage}
    command = step_command(arguments.program, arguments.config, arguments.steps, settings)
    found = run_ranks(command, 1, arguments.limit)
    return found if isinstance(found, str) else {
        **found[0], "peak_rss_bytes": found[0]["peak_rss_bytes"] / RANKS}


def deepspeed(arguments, stage):
    command = [sys.executable, ROOT / "bench/deepspeed_step.py", "--config", arguments.config,
               "--kind", arguments.dtype, "--stage", stage, "--threads", 1,
               "--steps", arguments.steps, "--warmup", 2, "--micro-batch", arguments.micro_batch,
               "--global-batch", arguments.micro_batch * arguments.micro_batches * RANKS,
               "--sequence", arguments.sequence]
    found = run_ranks(command, RANKS, arguments.limit, OMP_NUM_THREADS=1)
    return found if isinstance(found, str) else {
        **found[0], "peak_rss_bytes": max(rank["peak_rss_bytes"] for rank in found)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=pathlib.Path, default=CONFIG)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--stages", default="0,1,2,3")
    for name, value in (("micro-batch", 4), ("micro-batches", 1), ("sequence", 256),
                        ("rounds", 5), ("steps", 4)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for one measurement")
    arguments = parser.parse_args()
    arguments.config, arguments.program = arguments.config.resolve(), arguments.program.resolve()
    stages = [int(stage) for stage in arguments.stages.split(",")]
    programs = {"trident": trident} | ({} if arguments.alone else {"deepspeed": deepspeed})
    versions = [f"{name} {importlib.metadata.version(name)}"
                for name in ("deepspeed", "torch") if not arguments.alone]
    print(machine(), *versions, sep=", ")
    print(f"{arguments.config.stem}, {arguments.dtype}, {RANKS} ranks of one thread, "
          f"{arguments.micro_batches} x {arguments.micro_batch} x {arguments.sequence} tokens a "
          f"rank, {arguments.rounds} rounds of {arguments.steps} steps")
    tokens = RANKS * arguments.micro_batch * arguments.micro_batches * arguments.sequence
    ways = {(name, stage): (program, stage)
            for stage in stages for name, program in programs.items()}
    results = in_turns(ways, arguments.rounds, lambda way: way[0](arguments, way[1]))
    for (name, stage), runs in results.items():
        if failure := failure_of(runs):
            sys.exit(f"{name}, stage {stage}: {failure}")
    print(f"{'':12}{'stage':>6}{SPEED_TITLES}{'of stage 0':>12}{'of deepspeed':>14}")
    for (name, stage), runs in results.items():
        columns, rate = speed_columns(runs, tokens)
        line = f"{name:12}{stage:6}{columns}"
        if name == "trident":
            if 0 in stages:
                ratios = [base["milliseconds"] / run["milliseconds"]
                          for base, run in zip(results[name, 0], runs)]
                line += f"{statistics.median(ratios):12.3f}"
            if "deepspeed" in programs:
                peer = speed_columns(results["deepspeed", stage], tokens)[1]
                line += f"{rate / peer:14.3f}"
        print(line)


if __name__ == "__main__":
    main()
