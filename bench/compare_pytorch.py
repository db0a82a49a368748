#!/usr/bin/env python3
"""The same GPT-2 training step in Trident and in PyTorch, side by side on this machine.

    python bench/compare_pytorch.py [--config configs/gpt2_124m.json] [--threads N] [--compile]

One step is forward, backward and AdamW on random tokens, micro-batch 4 x sequence 256, in fp32 and in
bf16 with fp32 master weights. PyTorch runs bf16 both as a bf16 model with fp32 copies and under
autocast. Every measurement is a process of its own, the programs take turns, and each figure is the
median over the rounds; peak memory is the process's largest resident size. The ratio is Trident's
tokens/s over the best of PyTorch's ways. Needs scripts/requirements-peers.txt and the release build.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


# ---- the child: PyTorch's step ------------------------------------------------------------------


def make_model(sizes):
    """GPT-2 written plainly over PyTorch's own operators; tied embeddings, no dropout."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    hidden, heads = sizes["hidden_size"], sizes["num_attention_heads"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1 = nn.LayerNorm(hidden)
            self.qkv = nn.Linear(hidden, 3 * hidden)
            self.out = nn.Linear(hidden, hidden)
            self.ln_2 = nn.LayerNorm(hidden)
            self.up = nn.Linear(hidden, 4 * hidden)
            self.down = nn.Linear(4 * hidden, hidden)

        def forward(self, x):
            b, s, h = x.shape
            q, k, v = (t.view(b, s, heads, h // heads).transpose(1, 2)
                       for t in self.qkv(self.ln_1(x)).split(h, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, s, h))
            return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class GPT2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(sizes["vocab_size"], hidden)
            self.wpe = nn.Embedding(sizes["max_position_embeddings"], hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(sizes["num_layers"]))
            self.ln_f = nn.LayerNorm(hidden)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens, labels):
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.ln_f(x), self.wte.weight)
            return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

    return GPT2()


def pytorch_child(arguments):
    """Times steps in this process and prints {"milliseconds"} (the median step)."""
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    model = make_model(json.loads(arguments.config.read_text())["model"])
    masters = None
    if arguments.child == "bf16":
        masters = [p.detach().clone() for p in model.parameters()]
        model = model.bfloat16()
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(masters or weights, lr=1e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    run = torch.compile(model) if arguments.compile else model
    shape = (arguments.micro_batch, arguments.sequence)
    vocab = model.wte.num_embeddings

    def step():
        tokens, labels = torch.randint(vocab, shape), torch.randint(vocab, shape)
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.child == "autocast"):
            loss = run(tokens, labels)
        loss.backward()
        if masters:
            for master, weight in zip(masters, weights):
                master.grad = weight.grad.float()
        optimizer.step()
        if masters:
            with torch.no_grad():
                for master, weight in zip(masters, weights):
                    weight.copy_(master)
        model.zero_grad()
        return loss.item()

    times = []
    for i in range(arguments.warmup + arguments.steps):
        start = time.perf_counter()
        step()
        if i >= arguments.warmup:
            times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"milliseconds": statistics.median(times)}))


# ---- the parent ---------------------------------------------------------------------------------


def measure(command, threads):
    """Runs `command`; returns its JSON document and its peak resident bytes."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    environment.pop("OPENBLAS_CORETYPE", None)
    child = subprocess.Popen([str(c) for c in command], cwd=ROOT, stdout=subprocess.PIPE,
                             env=environment, text=True)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"exit {child.returncode}: {' '.join(map(str, command))}")
    return json.loads(output.strip().splitlines()[-1] if command[0] == sys.executable else output), \
        1024 * usage.ru_maxrss


def machine():
    names = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
             if line.startswith("model name")]
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split()
    wide = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores, {' '.join(wide)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=pathlib.Path, default=ROOT / "configs/gpt2_124m.json")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/trident")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="timed steps of a process")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--compile", action="store_true", help="PyTorch also by torch.compile")
    parser.add_argument("--child", choices=["fp32", "bf16", "autocast"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.config = arguments.config.resolve()
    if arguments.child:
        pytorch_child(arguments)
        return

    # PyTorch is not imported here: a child's peak starts from its parent's size.
    print(machine())
    print(f"Python {platform.python_version()}, PyTorch {importlib.metadata.version('torch')}, "
          f"{arguments.threads} threads, {arguments.rounds} rounds")
    tokens = arguments.micro_batch * arguments.sequence
    sizes = ["--micro-batch", arguments.micro_batch, "--sequence", arguments.sequence,
             "--threads", arguments.threads, "--steps", arguments.steps,
             "--warmup", arguments.warmup, "--config", arguments.config]
    for dtype in arguments.dtypes.split(","):
        settings = {"precision.dtype": dtype, "batch.micro_batch_size": arguments.micro_batch,
                    "batch.global_batch_size": arguments.micro_batch,
                    "data.sequence_length": arguments.sequence,
                    "runtime.threads_per_rank": arguments.threads}
        ways = {"trident": [arguments.program.resolve(), "bench", "step", arguments.config,
                            "--format", "json", "--iterations", arguments.steps,
                            *[w for k, v in settings.items() for w in ("--set", f"{k}={v}")]]}
        for kind in [dtype] if dtype == "fp32" else ["bf16", "autocast"]:
            for compiled in [False, True] if arguments.compile else [False]:
                name = f"pytorch {'compiled' if compiled else 'eager'}" + \
                    {"bf16": ", fp32 copies", "autocast": ", autocast"}.get(kind, "")
                ways[name] = [sys.executable, __file__, "--child", kind, *sizes,
                              *(["--compile"] if compiled else [])]
        results = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, command in ways.items():
                document, peak = measure(command, arguments.threads)
                results[name].append((1e3 * tokens / document["milliseconds"], peak))
        rates = {name: statistics.median(r for r, _ in runs) for name, runs in results.items()}
        print(f"\n{dtype:32}{'tokens/s':>10}{'min':>9}{'max':>9}{'ms/step':>10}{'peak MiB':>10}")
        for name, runs in results.items():
            speeds = [r for r, _ in runs]
            peak = statistics.median(p for _, p in runs) / 2**20
            print(f"  {name:30}{rates[name]:10.1f}{min(speeds):9.1f}{max(speeds):9.1f}"
                  f"{1e3 * tokens / rates[name]:10.1f}{peak:10.0f}")
        best = max(rate for name, rate in rates.items() if name != "trident")
        print(f"  ratio trident / best pytorch: {rates['trident'] / best:.3f}")


if __name__ == "__main__":
    main()
