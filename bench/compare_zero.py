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

from side_by_side import CONFIG, PROGRAM, ROOT, machine, run_ranks, step_command

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
        **found[0], "peak": found[0]["peak_rss_bytes"] / RANKS}


def deepspeed(arguments, stage):
    command = [sys.executable, ROOT / "bench/deepspeed_step.py", "--config", arguments.config,
               "--kind", arguments.dtype, "--stage", stage, "--threads", 1,
               "--steps", arguments.steps, "--warmup", 2, "--micro-batch", arguments.micro_batch,
               "--global-batch", arguments.micro_batch * arguments.micro_batches * RANKS,
               "--sequence", arguments.sequence]
    found = run_ranks(command, RANKS, arguments.limit, OMP_NUM_THREADS=1)
    return found if isinstance(found, str) else {
        **found[0], "peak": max(rank["peak_rss_bytes"] for rank in found)}


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
    results = {(name, stage): [] for stage in stages for name in programs}
    for _ in range(arguments.rounds):
        for (name, stage), runs in results.items():
            found = programs[name](arguments, stage)
            if isinstance(found, str):
                sys.exit(f"{name}, stage {stage}: {found}")
            runs.append({"speed": 1e3 * tokens / found["milliseconds"], **found})

    def column(name, stage, key):
        return [run[key] for run in results[name, stage]]

    print(f"{'':12}{'stage':>6}{'tokens/s':>10}{'min':>9}{'max':>9}{'MiB/rank':>10}"
          f"{'of stage 0':>12}{'of deepspeed':>14}")
    for (name, stage), runs in results.items():
        speeds = column(name, stage, "speed")
        line = (f"{name:12}{stage:6}{statistics.median(speeds):10.1f}{min(speeds):9.1f}"
                f"{max(speeds):9.1f}"
                f"{statistics.median(column(name, stage, 'peak')) / 2**20:10.0f}")
        if name == "trident":
            if 0 in stages:
                ratios = [a / b for a, b in zip(speeds, column(name, 0, "speed"))]
                line += f"{statistics.median(ratios):12.3f}"
            if "deepspeed" in programs:
                peer = statistics.median(column("deepspeed", stage, "speed"))
                line += f"{statistics.median(speeds) / peer:14.3f}"
        print(line)


if __name__ == "__main__":
    main()
