#!/usr/bin/env python3
"""Measures how the cost of a step grows with sequence, layers and vocabulary.

    python bench/growth.py [--axes sequence,layers,vocabulary] [--tokens N] [--rounds N]

Runs `trident bench step` on GPT-2 of width 768 at a constant number of tokens and prints the share
of the product rate that the model's FLOPs reach, with attention counted causally (a position sees
those before it; bench's own `mfu` counts all of them). Rounds take turns over the sizes; each figure
is the median. The variation of an axis is its largest share over the smallest, less one.
"""

import argparse
import pathlib
import statistics

from side_by_side import CONFIG, PROGRAM, THREADS, machine, run, step_command

HIDDEN, HEADS = 768, 12
AXES = {  # (sequence, layers, vocabulary)
    "sequence": [(s, 3, 50257) for s in (128, 256, 512, 1024, 2048, 4096)],
    "layers": [(256, n, 50257) for n in (6, 12, 24, 48)],
    "vocabulary": [(256, 6, v) for v in (8192, 32768, 65536, 131072)],
}


def causal_over_whole(found, tokens, sequence, layers):
    """The step's FLOPs with causal attention over those with whole attention, which bench counts."""
    whole = found["model_gflops"] * 1e9 * found["milliseconds"] * 1e-3
    attention = 12.0 * layers * HIDDEN * sequence * tokens
    return 1 - attention * (1 - (sequence + 1) / (2 * sequence)) / whole


def measure(arguments, sequence, layers, vocabulary):
    micro_batch = max(1, arguments.tokens // sequence)
    settings = {"model.num_layers": layers, "model.hidden_size": HIDDEN,
                "model.num_attention_heads": HEADS, "model.vocab_size": vocabulary,
                "model.max_position_embeddings": max(1024, sequence),
                "batch.micro_batch_size": micro_batch, "batch.global_batch_size": micro_batch,
                "data.sequence_length": sequence, "precision.dtype": arguments.dtype,
                "runtime.threads_per_rank": arguments.threads}
    found = run(step_command(arguments.program, CONFIG, arguments.steps, settings))
    share = found["mfu"] * causal_over_whole(found, micro_batch * sequence, sequence, layers)
    return {**found, "share": share}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--axes", default=",".join(AXES))
    parser.add_argument("--tokens", type=int, default=4096, help="of a step")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--threads", type=int, default=THREADS)
    arguments = parser.parse_args()
    for axis in arguments.axes.split(","):
        if axis not in AXES:
            parser.error(f"--axes: \"{axis}\" is none of {', '.join(AXES)}")
    arguments.program = arguments.program.resolve()
    print(f"{machine()}; {arguments.threads} threads, {arguments.dtype}, "
          f"{arguments.tokens} tokens a step")
    for axis in arguments.axes.split(","):
        runs = {size: [] for size in AXES[axis]}
        for _ in range(arguments.rounds):
            for size, list_ in runs.items():
                list_.append(measure(arguments, *size))
        print(f"{axis:>12} {'sequence':>9} {'layers':>7} {'vocab':>7} {'ms':>9} {'peak MiB':>9}"
              f" {'share':>7}")
        shares = []
        for size, list_ in runs.items():
            median = {k: statistics.median(r[k] for r in list_)
                      for k in ("milliseconds", "peak_rss_bytes", "share")}
            shares.append(median["share"])
            print(f"{'':12} {size[0]:9} {size[1]:7} {size[2]:7} {median['milliseconds']:9.0f}"
                  f" {median['peak_rss_bytes'] / 2**20:9.0f} {shares[-1]:7.3f}")
        print(f"{'':12} variation {max(shares) / min(shares) - 1:.3f}", flush=True)


if __name__ == "__main__":
    main()
