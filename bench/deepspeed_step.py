#!/usr/bin/env python3
"""One data-parallel rank of a GPT-2 in DeepSpeed on CPUs (gloo), for bench/compare_zero.py and
tests/peers/zero_peer.py, which start one process a rank.

Trains the model of bench/pytorch_step.py with ZeRO --stage, from the weights and batches in --given
(weights.safetensors as in a Hugging Face directory, batches.safetensors with "inputs" and "labels"
(steps, global batch, s)), or from random ones for timing. Prints {"losses"
(means over the global batch), "milliseconds" (median after --warmup), "peak_rss_bytes"}.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import time

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import safetensors.torch
import torch
import torch.distributed as dist
from pytorch_step import GPT2, loss_of


def load_hugging_face(model, tensors, heads):
    """GPT-2's tensors; its projections are stored (in, out), q, k and v one after the other."""
    names = {"ln_1": "ln_1", "out": "attn.c_proj", "ln_2": "ln_2", "up": "mlp.c_fc",
             "down": "mlp.c_proj"}
    tensors = {name.removeprefix("transformer."): t for name, t in tensors.items()}

    def by_head(t):  # rows (q|k|v, head, d) → (head, q|k|v, d)
        return t.reshape(3, heads, -1, *t.shape[1:]).transpose(0, 1).reshape(t.shape)

    with torch.no_grad():
        model.wte.weight.copy_(tensors["wte.weight"])
        model.wpe.weight.copy_(tensors["wpe.weight"])
        for part in ("weight", "bias"):
            getattr(model.ln_f, part).copy_(tensors[f"ln_f.{part}"])
            for i, block in enumerate(model.blocks):
                def stored(name):
                    t = tensors[f"h.{i}.{name}.{part}"]
                    return t.t() if t.dim() == 2 else t
                getattr(block.qkv, part).copy_(by_head(stored("attn.c_attn")))
                for ours, theirs in names.items():
                    getattr(getattr(block, ours), part).copy_(stored(theirs))


def settings_of(arguments, ranks):
    return {"train_batch_size": arguments.global_batch,
            "train_micro_batch_size_per_gpu": arguments.micro_batch,
            "gradient_accumulation_steps":
                arguments.global_batch // (arguments.micro_batch * ranks),
            "bf16": {"enabled": arguments.kind == "bf16"},
            "gradient_clipping": arguments.clipping,
            "zero_optimization": {"stage": arguments.stage},
            "steps_per_print": 10**9}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=pathlib.Path, required=True)
    parser.add_argument("--given", type=pathlib.Path)
    parser.add_argument("--kind", choices=["fp32", "bf16"], required=True)
    for name in ("stage", "threads", "steps", "warmup", "global-batch", "micro-batch", "sequence"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--clipping", type=float, default=1.0)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    deepspeed.init_distributed("gloo", verbose=False)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sizes = {"max_position_embeddings": arguments.sequence,
             **json.loads(arguments.config.read_text())["model"]}
    model = GPT2(sizes, sizes["num_layers"])
    if arguments.given:
        load_hugging_face(model, safetensors.torch.load_file(arguments.given / "weights.safetensors"),
                          sizes["num_attention_heads"])
        given = safetensors.torch.load_file(arguments.given / "batches.safetensors")
    weights = list(model.parameters())
    groups = [{"params": [p for p in weights if p.dim() >= 2],
               "weight_decay": arguments.weight_decay},
              {"params": [p for p in weights if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=arguments.lr, betas=(0.9, 0.95), fused=True)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer,
                                      config=settings_of(arguments, ranks))

    def batch_of(step):
        if arguments.given:
            batch = (given["inputs"][step], given["labels"][step])
        else:
            batch = torch.randint(sizes["vocab_size"],
                                  (2, arguments.global_batch, arguments.sequence))
        return [part.chunk(ranks)[rank].split(arguments.micro_batch) for part in batch]

    losses, times = [], []
    for step in range(arguments.warmup + arguments.steps):
        inputs, labels = batch_of(step)
        dist.barrier()
        start = time.perf_counter()
        total = torch.zeros(1)
        for tokens, wanted in zip(inputs, labels):
            loss = loss_of(engine(tokens), wanted)
            engine.backward(loss)
            engine.step()
            total += loss.detach().float()
        dist.barrier()
        times.append(1e3 * (time.perf_counter() - start))
        dist.all_reduce(total)
        losses.append(float(total) / (ranks * len(inputs)))
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"losses": losses, "peak_rss_bytes": peak,
                      "milliseconds": statistics.median(times[arguments.warmup:])}), flush=True)
    # With a usual end, one of its threads sometimes ends the process by std::terminate.
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
