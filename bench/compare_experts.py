#!/usr/bin/env python3
"""Compares a training step of a mixture of experts in Trident and in transformers on this machine.

    $(scripts/peers_python) bench/compare_experts.py [--dtypes fp32,bf16] [--rounds N] [--steps N]
        [--threads N] [--experts N] [--micro-batch N] [--sequence N] [--layers N]

The model is a small Mixtral: 8 experts, two for a token, 200 million parameters. One step is
forward, backward and AdamW on random tokens, without a balancing loss. transformers computes the
experts as it does by default (grouped_mm); bf16 is a bf16 model with fp32 copies for the optimizer,
or autocast. Trident's bf16 keeps fp32 masters.

Every measurement is a process of its own, the programs take turns, and each figure is the median
over the rounds; peak memory is the resident size, of which weights, gradients and the optimizer's
states are subtracted. The ratio is Trident's tokens/s over the best of transformers' ways. MFU is
the share of the product rate that `trident bench step` measures around each step, by the parameters
that compute.
"""

import argparse
import json
import pathlib
import resource
import statistics
import sys
import tempfile
import time

from side_by_side import (PROGRAM, ROOT, SPEED_TITLES, THREADS, failure_of, in_turns, machine,
                          median_of, mfu_column, run_ranks, speed_columns, step_command)


def sizes(arguments):
    return {"architecture": "mixtral", "num_layers": arguments.layers, "hidden_size": 768,
            "num_attention_heads": 12, "ffn_hidden_size": 1024, "vocab_size": 32000,
            "max_position_embeddings": arguments.sequence,
            "moe": {"num_experts": arguments.experts, "router_topk": 2,
                    "router_load_balancing_type": "none"}}


def train_transformers(arguments):
    """The child's part: prints the median milliseconds of a step and the peak of memory."""
    import torch
    import torch.nn.functional as F
    import transformers

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    own = sizes(arguments)
    model = transformers.AutoModelForCausalLM.from_config(transformers.MixtralConfig(
        vocab_size=own["vocab_size"], hidden_size=own["hidden_size"],
        intermediate_size=own["ffn_hidden_size"], num_hidden_layers=own["num_layers"],
        num_attention_heads=own["num_attention_heads"],
        num_key_value_heads=own["num_attention_heads"],
        max_position_embeddings=arguments.sequence, num_local_experts=arguments.experts,
        num_experts_per_tok=2), dtype=torch.float32).train()
    masters = None
    if arguments.kind == "bf16":
        masters = [p.detach().clone() for p in model.parameters()]
        model = model.bfloat16()
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(masters or weights, lr=1e-4, betas=(0.9, 0.95), fused=True)
    tokens = torch.randint(own["vocab_size"], (arguments.micro_batch, arguments.sequence + 1))

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.kind == "autocast"):
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
            loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        for master, weight in zip(masters or [], weights):
            master.grad, weight.grad = weight.grad.float(), None
        optimizer.step()
        with torch.no_grad():
            for master, weight in zip(masters or [], weights):
                weight.copy_(master)

    times = []
    for i in range(arguments.warmup + arguments.steps):
        begun = time.perf_counter()
        step()
        if i >= arguments.warmup:
            times.append(1e3 * (time.perf_counter() - begun))
    count = sum(p.numel() for p in weights)
    a_parameter = {"fp32": 16, "bf16": 2 + 4 + 4 + 8, "autocast": 16}[arguments.kind]
    print(json.dumps({"milliseconds": statistics.median(times),
                      "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                      "state_bytes": count * a_parameter, "parameters": count}))


def ways_of(arguments, dtype, config):
    shared = ["--layers", arguments.layers, "--experts", arguments.experts, "--threads",
              arguments.threads, "--micro-batch", arguments.micro_batch, "--sequence",
              arguments.sequence, "--steps", arguments.steps]
    ways = {"trident": step_command(arguments.program, config, arguments.steps,
                                    {"precision.dtype": dtype,
                                     "runtime.threads_per_rank": arguments.threads})}
    for kind in ["fp32"] if dtype == "fp32" else ["bf16", "autocast"]:
        ways[f"transformers, {kind}"] = [sys.executable, ROOT / "bench/compare_experts.py",
                                         "--kind", kind, *shared]
    return ways


def compare(arguments, dtype, config):
    def measure(command):
        found = run_ranks(command, 1, arguments.limit, OMP_NUM_THREADS=arguments.threads)
        return found if isinstance(found, str) else found[0]

    results = in_turns(ways_of(arguments, dtype, config), arguments.rounds, measure)
    print(f"\n{dtype:24}{SPEED_TITLES}{'- states':>10}{'MFU':>7}")
    tokens, rates, rests = arguments.micro_batch * arguments.sequence, {}, {}
    for name, runs in results.items():
        if failure := failure_of(runs):
            sys.exit(f"{name}: {failure}")
    count = next(run["parameters"] for runs in results.values() for run in runs
                 if "parameters" in run)
    for name, runs in results.items():
        columns, rates[name] = speed_columns(runs, tokens)
        # Trident's bf16: weights, fp32 gradients, masters and moments.
        states = runs[0].get("state_bytes", count * (16 if dtype == "fp32" else 18))
        rests[name] = median_of(runs, "peak_rss_bytes") - states
        print(f"  {name:22}{columns}{rests[name] / 2**20:10.0f}{mfu_column(runs)}")
    best = max((name for name in rates if name != "trident"), key=rates.get)
    print(f"  ratio trident / {best}: {rates['trident'] / rates[best]:.3f}; "
          f"peak less states: {rests['trident'] / rests[best]:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--dtypes", default="fp32,bf16")
    for name, usual in (("rounds", 5), ("steps", 5), ("warmup", 1), ("threads", THREADS),
                        ("experts", 8), ("micro-batch", 4), ("sequence", 256), ("layers", 8)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--limit", type=float, default=600, help="seconds of a measurement")
    parser.add_argument("--kind", choices=["fp32", "bf16", "autocast"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.kind:
        train_transformers(arguments)
        return
    import torch
    import transformers
    print(f"{machine()}; torch {torch.__version__}, transformers {transformers.__version__}; "
          f"{arguments.threads} threads, {arguments.micro_batch} x {arguments.sequence} tokens, "
          f"{arguments.experts} experts, {arguments.layers} layers")
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.json"
        config.write_text(json.dumps({
            "model": sizes(arguments),
            "batch": {"global_batch_size": arguments.micro_batch,
                      "micro_batch_size": arguments.micro_batch},
            "data": {"train": [{"path": "-"}], "sequence_length": arguments.sequence},
            "optimizer": {"params": {"lr": 1e-4, "betas": [0.9, 0.95]}},
            "training": {"train_iters": 1}}))
        for dtype in arguments.dtypes.split(","):
            compare(arguments, dtype, config)


if __name__ == "__main__":
    main()
