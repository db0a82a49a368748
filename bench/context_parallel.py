#!/usr/bin/env python3
"""Compares two ranks that share samples with one rank that has the threads of both.

    bench/context_parallel.py [--config FILE] [--sequence N] [--layers N] [--rounds N] [--steps N]

Prints the medians of tokens a second over the rounds, in which the ways take turns, and the memory
for activations and workspace of the largest rank with 1, 2, 4 and 8 ranks that each hold as many
positions of a sample (--local, 0 for none), with 16 heads.
"""

import argparse
import pathlib
import statistics

from side_by_side import CONFIG, PROGRAM, in_turns, machine, run, step_command

EXCHANGES = ("p2p", "all_gather", "a2a")


def context(ranks, exchange):
    return {"parallel.context_parallel_size": ranks, "parallel.cp_comm_type": exchange,
            "runtime.threads_per_rank": 1}


WAYS = {"one rank, two threads": {"runtime.threads_per_rank": 2},
        **{f"two ranks, {exchange}": context(2, exchange) for exchange in EXCHANGES}}


def step(arguments, sequence, settings):
    fixed = {"data.sequence_length": sequence, "model.max_position_embeddings": sequence,
             "model.num_layers": arguments.layers, "batch.micro_batch_size": 1,
             "batch.global_batch_size": 1}
    return run(step_command(arguments.program, arguments.config, arguments.steps,
                            fixed | settings))


def memory(arguments, ranks, exchange):
    """MiB of the largest rank's activations and workspace."""
    settings = context(ranks, exchange) if ranks > 1 else {"runtime.threads_per_rank": 1}
    settings |= {"model.num_attention_heads": 16, "model.num_query_groups": 16}  # 8 ranks divide them
    largest = step(arguments, arguments.local * ranks, settings)["ledger"]["largest_rank"]
    return (largest["activation"] + largest["workspace"]) / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=pathlib.Path, default=CONFIG)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    for name, usual in (("sequence", 4096), ("layers", 2), ("rounds", 3), ("steps", 3),
                        ("local", 1024)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    arguments = parser.parse_args()
    results = in_turns(WAYS, arguments.rounds, lambda settings: step(
        arguments, arguments.sequence, settings)["tokens_per_second"])
    print(f"{machine()}; {arguments.config.stem} with {arguments.layers} layers, samples of "
          f"{arguments.sequence} tokens")
    alone = statistics.median(results["one rank, two threads"])
    for name, rates in results.items():
        median = statistics.median(rates)
        print(f"{name:24} {median:8.1f} tokens/s ({min(rates):.1f} to {max(rates):.1f}), "
              f"{median / alone:.3f}")
    if arguments.local == 0:
        return
    print(f"activations and workspace of a rank with {arguments.local} positions, MiB:")
    for exchange in EXCHANGES:
        figures = [memory(arguments, ranks, exchange) for ranks in (1, 2, 4, 8)]
        print(f"{exchange:12}", *(f"{figure:8.1f}" for figure in figures))


if __name__ == "__main__":
    main()
