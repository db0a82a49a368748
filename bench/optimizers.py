#!/usr/bin/env python3
"""Compares loss and memory of the optimizers on real text: the quickstart's GPT on the King James Bible.

    $(scripts/peers_python) bench/optimizers.py [--iterations N] [--layers N] [--hidden N]

One rank with all threads trains the same model from the same start on the same batches, with each
optimizer at a learning rate that is usual for it, or at --rates. "states" is the optimizer's memory,
the fp32 master weights of bf16 included, "peak" the ledger's; losses are validation losses at
sixths of the run.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

from side_by_side import PROGRAM, ROOT, THREADS, machine

RATES = {"AdamW": 2e-3, "Adafactor": 2e-2, "SGD": 0.1}


def train(program, arguments, kind, dtype, rate):
    with tempfile.TemporaryDirectory() as run:
        settings = {"parallel.data_parallel_size": 1, "parallel.tensor_model_parallel_size": 1,
                    "parallel.pipeline_model_parallel_size": 1, "runtime.transport": "local",
                    "runtime.threads_per_rank": THREADS, "precision.dtype": dtype,
                    "model.num_layers": arguments.layers, "model.hidden_size": arguments.hidden,
                    "training.train_iters": arguments.iterations,
                    "training.eval_interval": arguments.iterations // 6,
                    "optimizer.type": kind, "optimizer.params.lr": rate,
                    "scheduler.min_lr": rate / 10, "checkpoint.save": "null", "logging.dir": run,
                    "logging.tensorboard": "false", "logging.trace": "false"}
        if kind != "AdamW":
            settings |= {"optimizer.params.betas": "null"}
        words = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
        subprocess.run([program, "train", ROOT / "configs/quickstart.json", *words], cwd=ROOT,
                       check=True, capture_output=True)
        return [json.loads(line) for line in
                (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--iterations", type=int, default=600)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rates", type=float, nargs="*", help="instead of the chosen ones")
    parser.add_argument("--optimizers", default="AdamW,Adafactor")
    parser.add_argument("--dtypes", default="fp32,bf16")
    arguments = parser.parse_args()
    print(machine())
    print(f"{'':18}{'rate':>8}{'states MB':>11}{'peak MB':>9}  validation loss")
    for dtype in arguments.dtypes.split(","):
        for kind in arguments.optimizers.split(","):
            for rate in arguments.rates or [RATES[kind]]:
                lines = train(arguments.program.resolve(), arguments, kind, dtype, rate)
                losses = [line["validation_loss"] for line in lines if "validation_loss" in line]
                memory = lines[-1]["peak_memory"]
                print(f"{kind:12}{dtype:6}{rate:8}{memory['optimizer'] * 1e-6:11.2f}"
                      f"{memory['total'] * 1e-6:9.1f}  "
                      + " ".join(f"{loss:.3f}" for loss in losses), flush=True)


if __name__ == "__main__":
    main()
