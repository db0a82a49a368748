#!/usr/bin/env python3
"""Compares the same GPT-2 training step in Trident and in PyTorch on this machine.

    $(scripts/peers_python) bench/compare_pytorch.py [--layouts one,data,tensor,pipeline]
        [--dtypes fp32,bf16] [--compile] [--rounds N] [--steps N] [--threads N]

One step is forward, backward and AdamW on random tokens: micro-batch 4 x sequence 256 a replica,
in a pipeline 8 micro-batches of 2 x 256 by 1F1B over 7 + 5 layers (--layers). "one" is one rank with
all threads, the others two ranks with half of them each; PyTorch's side is bench/pytorch_step.py.
Trident also runs the same global batch with one rank: "ranks / threads" is the parallel layout's
speed over that, in a pipeline over that times the share outside the bubble (the bubble of the
schedule's list, replayed with the CPU time of its actions). bf16 keeps fp32 masters; PyTorch does it with fp32
copies and by autocast.

Every measurement is a process (or one per rank) of its own, the programs take turns, and each
figure is the median over the rounds; peak memory is the resident size, summed over processes. The
ratio is Trident's tokens/s over the best of PyTorch's ways. MFU is the share of the product rate
that `trident bench step` measures around each step.
"""

import argparse
import importlib.metadata
import pathlib
import platform
import sys

from side_by_side import (CONFIG, PROGRAM, ROOT, SPEED_TITLES, THREADS, failure_of, in_turns,
                          machine, median_of, mfu_column, run_ranks, speed_columns, step_command)

RANKS = 2
# The micro-batch, the micro-batches of a rank, and the settings of Trident.
LAYOUTS = {
    "one": (4, 1, {}),
    "data": (4, 1, {"parallel.data_parallel_size": RANKS}),
    "tensor": (4, 1, {"parallel.tensor_model_parallel_size": RANKS}),
    "pipeline": (2, 8, {"parallel.pipeline_model_parallel_size": RANKS,
                        "pipeline.schedule": "1f1b"}),
}


def measure(command, threads, ranks, limit):
    """Rank 0's document with the resident bytes of all ranks, or an error's text."""
    found = run_ranks(command, ranks, limit, OMP_NUM_THREADS=threads)
    if isinstance(found, str):
        return found
    return {**found[0], "peak_rss_bytes": sum(d["peak_rss_bytes"] for d in found)}


def ways_of(arguments, layout, dtype):
    """{name: (command, threads a rank, processes)}, and the tokens of a step."""
    micro_batch, count, parallel = LAYOUTS[layout]
    ranks = 1 if layout == "one" else RANKS
    threads = max(1, arguments.threads // ranks)
    replicas = ranks if layout == "data" else 1
    settings = {"precision.dtype": dtype, "batch.micro_batch_size": micro_batch,
                "batch.global_batch_size": micro_batch * count * replicas,
                "data.sequence_length": arguments.sequence}
    if layout == "pipeline":
        parallel = {**parallel, "pipeline.layer_split": f"[{arguments.layers.replace('+', ',')}]"}

    def trident(more, threads):
        return step_command(arguments.program, arguments.config, arguments.steps,
                            {**settings, **more, "runtime.threads_per_rank": threads})

    ways = {"trident": (trident(parallel, threads), threads, 1)}
    if ranks > 1:
        ways["trident, one rank"] = (trident({}, ranks * threads), ranks * threads, 1)
    for kind in [dtype] if dtype == "fp32" else ["bf16", "autocast"]:
        for compiled in [False, True] if arguments.compile else [False]:
            name = f"pytorch {'compiled' if compiled else 'eager'}" + \
                {"bf16": ", fp32 copies", "autocast": ", autocast"}.get(kind, "")
            ways[name] = ([sys.executable, ROOT / "bench/pytorch_step.py", "--kind", kind,
                           "--layout", layout, *(["--compile"] if compiled else []),
                           "--config", arguments.config, "--layers", *arguments.layers.split("+"),
                           "--threads", threads, "--steps", arguments.steps,
                           "--warmup", arguments.warmup, "--micro-batch", micro_batch,
                           "--micro-batches", count, "--sequence", arguments.sequence],
                          threads, ranks)
    return ways, micro_batch * count * replicas * arguments.sequence


def compare(arguments, layout, dtype):
    ways, tokens = ways_of(arguments, layout, dtype)
    results = in_turns(ways, arguments.rounds, lambda way: measure(*way, arguments.limit))
    title = f"{layout}, {dtype}"
    print(f"\n{title:32}{SPEED_TITLES}{'MFU':>7}")
    rates = {}
    for name, runs in results.items():
        if failure := failure_of(runs):
            print(f"  {name:30}failed: {failure[:100]}")
            continue
        columns, rates[name] = speed_columns(runs, tokens)
        print(f"  {name:30}{columns}{mfu_column(runs)}")
    if "trident" not in rates:
        sys.exit("trident failed")
    peers = [rate for name, rate in rates.items() if name.startswith("pytorch")]
    if peers:
        print(f"  ratio trident / best pytorch: {rates['trident'] / max(peers):.3f}")
    if "trident, one rank" in rates:
        ratio = rates["trident"] / rates["trident, one rank"]
        print(f"  ratio ranks / threads: {ratio:.3f}", end="")
        bubble = median_of(results["trident"], "bubble_ratio")
        print(f"; of what a bubble of {bubble:.3f} leaves: {ratio / (1 - bubble):.3f}"
              if layout == "pipeline" else "")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=pathlib.Path, default=CONFIG)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--threads", type=int, default=THREADS,
                        help="of all ranks together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="timed steps of a process")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them, PyTorch's")
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--layers", default="7+5", help="of each pipeline stage")
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--compile", action="store_true", help="PyTorch also by torch.compile")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for one measurement")
    arguments = parser.parse_args()
    arguments.config, arguments.program = arguments.config.resolve(), arguments.program.resolve()
    for layout in arguments.layouts.split(","):
        if layout not in LAYOUTS:
            parser.error(f"--layouts: \"{layout}\" is none of {', '.join(LAYOUTS)}")
    print(machine())
    print(f"Python {platform.python_version()}, PyTorch {importlib.metadata.version('torch')}, "
          f"{arguments.threads} threads, {arguments.rounds} rounds of {arguments.steps} steps")
    for layout in arguments.layouts.split(","):
        for dtype in arguments.dtypes.split(","):
            compare(arguments, layout, dtype)


if __name__ == "__main__":
    main()
