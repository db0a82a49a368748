#!/usr/bin/env python3
"""One rank of PyTorch's side of bench/compare_pytorch.py; started by it, one process a rank.

Layouts are PyTorch's own ways: DistributedDataParallel, DTensor tensor parallelism (column- and
row-split linear layers, split vocabulary, parallel loss) and torch.distributed.pipelining's 1F1B,
all over gloo. bf16 is a bf16 model with fp32 copies for the optimizer, or autocast. Prints
{"milliseconds", "peak_rss_bytes"}, of rank 0's median step.
"""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.size = hidden // heads
        self.ln_1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)  # rows by (head, q|k|v), so that heads can be split
        self.out = nn.Linear(hidden, hidden)
        self.ln_2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, s, _ = x.shape
        qkv = self.qkv(self.ln_1(x)).view(b, s, -1, 3, self.size)
        q, k, v = (t.transpose(1, 2) for t in qkv.unbind(3))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, -1))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """GPT-2 or a stage of it, written plainly over PyTorch's operators; tied, no dropout."""

    def __init__(self, sizes, layers, first=True, last=True):
        super().__init__()
        hidden, vocab = sizes["hidden_size"], sizes["vocab_size"]
        self.wte = nn.Embedding(vocab, hidden) if first else None
        self.wpe = nn.Embedding(sizes["max_position_embeddings"], hidden) if first else None
        heads = sizes["num_attention_heads"]
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(hidden) if last else None
        self.head = nn.Linear(hidden, vocab, bias=False) if last else None
        self.tie()
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def tie(self):
        if self.wte and self.head:
            self.head.weight = self.wte.weight

    def forward(self, x):
        if self.wte:
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x)) if self.head else x


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def split_tensors(model):
    """Megatron's splits by DTensor; returns what makes the loss's context."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, loss_parallel,
                                                   parallelize_module)
    plan = {"wte": RowwiseParallel(input_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    for i in range(len(model.blocks)):
        plan |= {f"blocks.{i}.qkv": ColwiseParallel(), f"blocks.{i}.out": RowwiseParallel(),
                 f"blocks.{i}.up": ColwiseParallel(), f"blocks.{i}.down": RowwiseParallel()}
    parallelize_module(model, init_device_mesh("cpu", (dist.get_world_size(),)), plan)
    model.tie()
    return loss_parallel


def make_optimizer(tensors):
    # DTensors and plain tensors can't be in one group of the fused optimizer.
    split = [t for t in tensors if hasattr(t, "placements")]
    whole = [t for t in tensors if not hasattr(t, "placements")]
    return torch.optim.AdamW([{"params": g} for g in (split, whole) if g], lr=1e-4,
                             betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["fp32", "bf16", "autocast"], required=True)
    parser.add_argument("--layout", choices=["one", "data", "tensor", "pipeline"], required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--config", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, nargs="*", help="of each stage")
    for name in ("threads", "steps", "warmup", "micro-batch", "micro-batches", "sequence"):
        parser.add_argument(f"--{name}", type=int, required=True)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    rank, layout = int(os.environ.get("RANK", 0)), arguments.layout
    if layout != "one":
        dist.init_process_group("gloo")
    sizes = json.loads(arguments.config.read_text())["model"]
    if layout == "pipeline":
        last = rank == dist.get_world_size() - 1
        model = GPT2(sizes, arguments.layers[rank], rank == 0, last)
    else:
        model = GPT2(sizes, sizes["num_layers"])
    loss_context = split_tensors(model) if layout == "tensor" else contextlib.nullcontext
    masters = None
    if arguments.kind == "bf16":
        masters = [p.detach().clone() for p in model.parameters()]
        model = model.bfloat16()
        model.tie()
    weights = list(model.parameters())
    optimizer = make_optimizer(masters or weights)
    run = nn.parallel.DistributedDataParallel(model) if layout == "data" else model
    if arguments.compile:
        run = torch.compile(run)
    count = arguments.micro_batches
    shape = (arguments.micro_batch * count, arguments.sequence)
    if layout == "pipeline":
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        stage = PipelineStage(run, rank, dist.get_world_size(), torch.device("cpu"))
        schedule = Schedule1F1B(stage, count, loss_fn=loss_of)

    def train():
        tokens, labels = torch.randint(sizes["vocab_size"], (2, *shape))
        autocast = torch.autocast("cpu", torch.bfloat16, enabled=arguments.kind == "autocast")
        with autocast, loss_context():
            if layout == "pipeline":
                losses = []
                schedule.step(*([tokens] if rank == 0 else []),
                              **({"target": labels, "losses": losses} if last else {}))
                table = model.head.weight if last else model.wte.weight if rank == 0 else None
                if table is not None:  # two stages: the tied table is on both
                    dist.all_reduce(table.grad)
                return
            for i in range(count):
                part = slice(i * arguments.micro_batch, (i + 1) * arguments.micro_batch)
                quiet = layout == "data" and i + 1 < count
                with run.no_sync() if quiet else contextlib.nullcontext():
                    (loss_of(run(tokens[part]), labels[part]) / count).backward()

    def update():
        if masters:
            for master, weight in zip(masters, weights):
                master.grad = weight.grad.float()
        optimizer.step()
        if masters:
            with torch.no_grad():
                for master, weight in zip(masters, weights):
                    weight.copy_(master)
        model.zero_grad()

    times = []
    for i in range(arguments.warmup + arguments.steps):
        if layout != "one":
            dist.barrier()
        start = time.perf_counter()
        train()
        update()
        if layout != "one":
            dist.barrier()
        if i >= arguments.warmup:
            times.append(1e3 * (time.perf_counter() - start))
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"milliseconds": statistics.median(times), "peak_rss_bytes": peak}), flush=True)
    if layout != "one":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
