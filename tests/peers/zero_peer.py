#!/usr/bin/env python3
"""Compares ZeRO's stages 1, 2 and 3 in the program and in DeepSpeed (CPU, gloo), in fp32.

    python tests/peers/zero_peer.py [--seed N] [--program build/release/trident]

A GPT-2 of the quickstart's size, the same weights and batches, two data-parallel ranks, 50 steps
with clipping and weight decay: loss curves agree within 1e-4, and with PyTorch's on one process in
fp64. Ends with `N passed, 0 failed`.
"""

import argparse
import pathlib
import random
import sys
import tempfile

from live_peer import Checks, make_golden, train

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import safetensors.torch
import torch
from side_by_side import run_ranks

RANKS = 2
TOLERANCE = 1e-4


def draw_case(rng):
    iterations, global_batch = 50, 8
    return make_golden.Case(
        "gpt2", layers=4, hidden=128, heads=4, groups=4, ffn=512, vocab=256, positions=128,
        sequence=128, samples=iterations * global_batch, tied=True, seed=rng.randrange(2**31),
        global_batch=global_batch, micro_batch=2, iterations=iterations, warmup=0, lr=1e-3,
        min_lr=1e-3)


def write_given(case, folder, tokens):
    """Writes the inputs of bench/deepspeed_step.py."""
    given = folder / "given"
    given.mkdir()
    (given / "weights.safetensors").symlink_to(folder / "model/model.safetensors")
    batches = [make_golden.batch(case, tokens, k) for k in range(case.iterations)]
    inputs, labels = (torch.stack(parts).contiguous() for parts in zip(*batches))
    safetensors.torch.save_file({"inputs": inputs, "labels": labels},
                                given / "batches.safetensors")
    return given


def deepspeed_losses(case, stage, config, given):
    found = run_ranks(
        [sys.executable, ROOT / "bench/deepspeed_step.py", "--config", config, "--given", given,
         "--kind", "fp32", "--stage", stage, "--threads", 1, "--steps", case.iterations,
         "--warmup", 0, "--global-batch", case.global_batch, "--micro-batch", case.micro_batch,
         "--sequence", case.sequence, "--lr", case.lr, "--weight-decay", case.weight_decay,
         "--clipping", case.clipping], RANKS, 600, OMP_NUM_THREADS=1)
    if isinstance(found, str):
        raise RuntimeError(f"DeepSpeed, stage {stage}: {found}")
    return found[0]["losses"]


def expect_near(checks, got, want, what):
    checks.expect(len(got) == len(want), f"{what}: {len(got)} losses, need {len(want)}")
    furthest = max(abs(a - b) for a, b in zip(got, want))
    print(f"  {what}: furthest apart {furthest:.1e}")
    checks.expect(furthest <= TOLERANCE, f"{what}: {furthest:.2e} apart")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/trident")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    case = draw_case(random.Random(arguments.seed))
    checks = Checks()
    print(f"zero peer: seed {arguments.seed}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "case"
        golden, _, _, tokens = make_golden.make_case(case, folder, str(folder), str(folder / "run"))
        given = write_given(case, folder, tokens)
        checks.expect(golden["losses"][-1] < golden["losses"][0] - 1, "the model learns")
        for stage in (1, 2, 3):
            theirs = deepspeed_losses(case, stage, folder / "config.json", given)
            ours = [line["loss"] for line in train(
                arguments.program.resolve(), folder / "config.json", folder / f"run-{stage}",
                {"parallel.data_parallel_size": RANKS, "zero_optimization.stage": stage,
                 "zero_optimization.stage3_param_persistence_threshold": 1000,
                 "scheduler.type": "constant", "scheduler.min_lr": 0})]
            expect_near(checks, ours, theirs, f"stage {stage}, program and DeepSpeed")
            expect_near(checks, ours, golden["losses"], f"stage {stage}, program and fp64")
    print(f"{checks.passed} passed, {checks.failed} failed")
    if checks.failed:
        sys.exit(f"zero peer failed; again with: tests/peers/zero_peer.py --seed {arguments.seed}")


if __name__ == "__main__":
    main()
