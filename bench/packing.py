#!/usr/bin/env python3
"""Compares ways to put documents into samples: how many tokens that count a second has.

    bench/packing.py [--config FILE] [--sequence N] [--mean N] [--rounds N] [--steps N] [--threads N]

Documents have lengths from an exponential distribution, at most a sample's. "padded" has a document
in each sample, "concatenated" ranges of the stream in which each token sees all before it, "packed"
what best_fit makes. Each figure is the median over the rounds of a run's tokens over its seconds; the
ways take turns, and every run is a process of its own.
"""

import argparse
import json
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile

from side_by_side import CONFIG, PROGRAM, THREADS, in_turns, machine

RESETS = ["data.reset_attention_mask=true", "data.reset_position_ids=true",
          "data.eod_mask_loss=true"]
WAYS = {"padded": [*RESETS, "data.packing=best_fit", "data.packing_window=1"],
        "concatenated": [],
        "packed": [*RESETS, "data.packing=best_fit"]}


def write_documents(prefix, mean, longest, count, vocabulary):
    """A .bin/.idx pair (datasets/indexed_source.h)."""
    lengths = [min(longest, 1 + int(random.expovariate(1 / mean))) for _ in range(count)]
    with open(f"{prefix}.bin", "wb") as tokens:
        for length in lengths:
            tokens.write(struct.pack(f"<{length}H",
                                     *(random.randrange(vocabulary) for _ in range(length))))
    with open(f"{prefix}.idx", "wb") as index:
        index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1))
        index.write(struct.pack(f"<{count}i", *lengths))
        index.write(struct.pack(f"<{count}q", *(2 * sum(lengths[:i]) for i in range(count))))
        index.write(struct.pack(f"<{count + 1}q", *range(count + 1)))


def measure(arguments, folder, settings):
    """The counted tokens a second of one run; the first step isn't timed."""
    run = pathlib.Path(folder) / "run"
    command = [arguments.program, "train", arguments.config, "--quiet"]
    fixed = {"data.train": json.dumps([{"path": f"{folder}/tokens"}]),
             "data.sequence_length": arguments.sequence, "logging.dir": run,
             "model.max_position_embeddings": arguments.sequence, "logging.overwrite": "true",
             "batch.micro_batch_size": 1, "batch.global_batch_size": 1, "scheduler.warmup_iters": 0, "checkpoint": "null",
             "data.validation": "null", "data.split": "null", "data.tokenizer": "null", "logging.tensorboard": "false",
             "training.train_iters": arguments.steps + 1, "training.train_epochs": "null",
             "runtime.threads_per_rank": arguments.threads, "logging.trace": "false"}
    words = [f"{key}={value}" for key, value in fixed.items()] + settings
    for word in words:
        command += ["--set", word]
    subprocess.run([str(word) for word in command], check=True)
    steps = [json.loads(line) for line in open(run / "metrics.jsonl")][1:]
    tokens = sum(step.get("counted_tokens", arguments.sequence) for step in steps)
    return 1e3 * tokens / sum(step["iteration_time_ms"] for step in steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=pathlib.Path, default=CONFIG)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    for name, usual in (("sequence", 4096), ("mean", 512), ("rounds", 3), ("steps", 4),
                        ("threads", THREADS)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    arguments = parser.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory() as folder:
        write_documents(f"{folder}/tokens", arguments.mean, arguments.sequence, 2000, 50000)
        results = in_turns(WAYS, arguments.rounds,
                           lambda settings: measure(arguments, folder, settings))
    print(f"{machine()}; {arguments.config.stem}, samples of {arguments.sequence} tokens, documents "
          f"of {arguments.mean} in the mean, {arguments.threads} threads")
    medians = {name: statistics.median(rates) for name, rates in results.items()}
    for name, rates in results.items():
        print(f"  {name:14}{medians[name]:10.1f} counted tokens/s "
              f"({min(rates):.1f} to {max(rates):.1f}); packed / this: "
              f"{medians['packed'] / medians[name]:.2f}")


if __name__ == "__main__":
    main()
