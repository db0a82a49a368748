#!/usr/bin/env python3
"""One rank of PyTorch's side of bench/compare_pytorch.py; started by it, one process a rank.

Layouts use PyTorch's own modules: DistributedDataParallel, DTensor tensor parallelism (column- and
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
    """Applies Megatron's splits by DTensor; returns the function that makes the loss's context."""
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
    # The fused optimizer can't mix DTensors and plain tensors in one group.
    split = [t for t in tensors if hasattr(t, "placements")]
    whole = [t for t in tensors if not hasattr(t, "placements")]
    return torch.optim.AdamW([{"params": g} for g in (split, whole) if g], lr=1e-4,
                             betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["fp32", "bf16", "autocast"], required=True)
    parser.add_argument("--layout", choices=["one", "data", "tensor", "pipeline"], required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--config", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, nargs="*", help="of each stage")
    for name in ("threads", "steps", "warmup", "micro-batch", "micro-batches", "sequence"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


class Trainer:
    """A rank's model, and the two halves of its step."""

    def __init__(self, arguments, rank):
        self.arguments, self.rank, self.layout = arguments, rank, arguments.layout
        self.last = self.layout == "pipeline" and rank == dist.get_world_size() - 1
        self.sizes = json.loads(arguments.config.read_text())["model"]
        if self.layout == "pipeline":
            model = GPT2(self.sizes, arguments.layers[rank], rank == 0, self.last)
        else:
            model = GPT2(self.sizes, self.sizes["num_layers"])
        tensor = self.layout == "tensor"
        self.loss_context = split_tensors(model) if tensor else contextlib.nullcontext
        self.masters = None
        if arguments.kind == "bf16":
            self.masters = [p.detach().clone() for p in model.parameters()]
            model = model.bfloat16()
            model.tie()
        self.model, self.weights = model, list(model.parameters())
        self.optimizer = make_optimizer(self.masters or self.weights)
        data = self.layout == "data"
        self.run = nn.parallel.DistributedDataParallel(model) if data else model
        if arguments.compile:
            self.run = torch.compile(self.run)
        if self.layout == "pipeline":
            from torch.distributed.pipelining import PipelineStage, Schedule1F1B
            stage = PipelineStage(self.run, rank, dist.get_world_size(), torch.device("cpu"))
            self.schedule = Schedule1F1B(stage, arguments.micro_batches, loss_fn=loss_of)

    def train(self):
        batch, count = self.arguments.micro_batch, self.arguments.micro_batches
        shape = (2, batch * count, self.arguments.sequence)
        tokens, labels = torch.randint(self.sizes["vocab_size"], shape)
        autocast = torch.autocast("cpu", torch.bfloat16, enabled=self.arguments.kind == "autocast")
        with autocast, self.loss_context():
            if self.layout == "pipeline":
                self.train_pipeline(tokens, labels)
                return
            for i in range(count):
                part = slice(i * batch, (i + 1) * batch)
                quiet = self.layout == "data" and i + 1 < count
                with self.run.no_sync() if quiet else contextlib.nullcontext():
                    (loss_of(self.run(tokens[part]), labels[part]) / count).backward()

    def train_pipeline(self, tokens, labels):
        first, last, losses = self.rank == 0, self.last, []
        self.schedule.step(*([tokens] if first else []),
                           **({"target": labels, "losses": losses} if last else {}))
        table = self.model.head.weight if last else self.model.wte.weight if first else None
        if table is not None:  # two stages: the tied table is on both
            dist.all_reduce(table.grad)

    def update(self):
        if self.masters:
            for master, weight in zip(self.masters, self.weights):
                master.grad = weight.grad.float()
        self.optimizer.step()
        if self.masters:
            with torch.no_grad():
                for master, weight in zip(self.masters, self.weights):
                    weight.copy_(master)
        self.model.zero_grad()


def main():
    arguments = parsed()
    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    several = arguments.layout != "one"
    if several:
        dist.init_process_group("gloo")
    trainer = Trainer(arguments, int(os.environ.get("RANK", 0)))
    times = []
    for i in range(arguments.warmup + arguments.steps):
        if several:
            dist.barrier()
        start = time.perf_counter()
        trainer.train()
        trainer.update()
        if several:
            dist.barrier()
        if i >= arguments.warmup:
            times.append(1e3 * (time.perf_counter() - start))
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"milliseconds": statistics.median(times), "peak_rss_bytes": peak}), flush=True)
    if several:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
