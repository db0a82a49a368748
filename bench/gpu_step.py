#!/usr/bin/env python3
"""One GPU's training step in PyTorch, compiled and with its fused attention and AdamW, for
bench/compare_gpu.py: a model of Trident's config on random tokens.

    bench/gpu_step.py --config configs/gpu/llama_1b.json --kind autocast|bf16 [--steps N]

"bf16" keeps fp32 copies for the optimizer, as Trident does; "autocast" keeps fp32 weights. Prints
{"milliseconds", "peak_bytes", "parameters", "loss", "sdpa", "versions"}: the median step, the most
memory allocated, the kinds of fused attention that were allowed, by preference where it has one.
"""

import argparse
import contextlib
import inspect
import json
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from pytorch_step import GPT2, loss_of
from torch import nn

OWN_CHOICE = ["PyTorch's own choice"]


class LlamaBlock(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        hidden, heads = sizes["hidden_size"], sizes["num_attention_heads"]
        self.size = hidden // heads
        self.heads, self.groups = heads, sizes.get("num_query_groups", heads)
        self.norm_1, self.norm_2 = (nn.RMSNorm(hidden, eps=1e-5) for _ in range(2))
        self.qkv = nn.Linear(hidden, (heads + 2 * self.groups) * self.size, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * sizes["ffn_hidden_size"], bias=False)
        self.down = nn.Linear(sizes["ffn_hidden_size"], hidden, bias=False)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        qkv = self.qkv(self.norm_1(x)).view(b, s, -1, self.size).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.groups, self.groups], 1)

        def rotated(t):
            left, right = t.chunk(2, -1)
            return (t * cos + torch.cat((-right, left), -1) * sin).to(t.dtype)

        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True,
                                           enable_gqa=self.groups != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, -1))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        hidden, vocab = sizes["hidden_size"], sizes["vocab_size"]
        other = {"head_dim", "sliding_window", "rope_scaling", "attention_bias", "mlp_bias"}
        assert not other & set(sizes), "this Llama has none of them"
        self.size = hidden // sizes["num_attention_heads"]
        self.table = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(LlamaBlock(sizes) for _ in range(sizes["num_layers"]))
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.head = nn.Linear(hidden, vocab, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x):
        rates = 10000.0 ** (-torch.arange(0, self.size, 2, device=x.device) / self.size)
        angles = torch.arange(x.shape[1], device=x.device)[:, None] * torch.cat((rates, rates))
        cos, sin = angles.cos(), angles.sin()
        x = self.table(x)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def fused_attention(device):
    """The kinds of fused attention that PyTorch may take, and the context that allows them. On Hopper
    and later cuDNN's comes first, which only some versions of PyTorch prefer themselves."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        kinds = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION,
                 SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        ordered = "set_priority" in inspect.signature(sdpa_kernel).parameters
    except (ImportError, AttributeError):
        return OWN_CHOICE, contextlib.nullcontext()
    if not ordered or device != "cuda" or torch.cuda.get_device_capability()[0] < 9:
        return OWN_CHOICE, contextlib.nullcontext()
    return [kind.name for kind in kinds], sdpa_kernel(kinds, set_priority=True)


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=pathlib.Path, required=True)
    parser.add_argument("--kind", choices=["autocast", "bf16"], required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--device", default="cuda", help="cpu: to try this file")
    parser.add_argument("--no-compile", action="store_true")
    return parser.parse_args()


def make_model(sizes, kind):
    """The model and, for bf16, the fp32 copies of its weights that the optimizer updates."""
    gpt2 = sizes["architecture"] == "gpt2"
    model = GPT2(sizes, sizes["num_layers"]) if gpt2 else Llama(sizes)
    masters = None
    if kind == "bf16":
        masters = [p.detach().clone() for p in model.parameters()]
        model = model.bfloat16()
        if gpt2:
            model.tie()
    return model, masters


def make_step(model, masters, config, arguments):
    """Returns a function that runs a step and returns its milliseconds and its last micro-batch's loss."""
    batch, count = config["batch"]["micro_batch_size"], config["batch"]["global_batch_size"]
    sequence, vocabulary = config["data"]["sequence_length"], config["model"]["vocab_size"]
    weights = list(model.parameters())
    settings = config["optimizer"]["params"]
    optimizer = torch.optim.AdamW(masters or weights, lr=settings["lr"], betas=settings["betas"],
                                  weight_decay=settings["weight_decay"], fused=True)

    def forward(tokens, labels):
        with torch.autocast(arguments.device, torch.bfloat16, enabled=arguments.kind == "autocast"):
            return loss_of(model(tokens), labels)

    run = forward if arguments.no_compile else torch.compile(forward)
    wait = torch.cuda.synchronize if arguments.device == "cuda" else lambda: None

    def step():
        tokens, labels = torch.randint(vocabulary, (2, count, sequence))
        wait()
        start = time.perf_counter()
        for k in range(0, count, batch):
            loss = run(tokens[k:k + batch], labels[k:k + batch])
            (loss * batch / count).backward()
        if masters:
            for master, weight in zip(masters, weights):
                master.grad = weight.grad.float()
        nn.utils.clip_grad_norm_(masters or weights, 1.0, foreach=True)
        optimizer.step()
        if masters:
            with torch.no_grad():
                torch._foreach_copy_(weights, masters)
        model.zero_grad(set_to_none=True)
        wait()
        return 1e3 * (time.perf_counter() - start), loss.detach()

    return step


def measure(step, model, arguments):
    """The kinds of fused attention that were allowed; times and losses of the steps."""
    sdpa, allowed = fused_attention(arguments.device)
    with contextlib.ExitStack() as stack:
        stack.enter_context(allowed)
        try:
            step()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            print(f"with {sdpa}: {error}"[:500], file=sys.stderr)
            stack.close()
            sdpa = OWN_CHOICE
            torch._dynamo.reset()
            model.zero_grad(set_to_none=True)
            step()
        for _ in range(arguments.warmup - 1):
            step()
        return sdpa, *zip(*(step() for _ in range(arguments.steps)))


def main():
    arguments = parsed()
    config = json.loads(arguments.config.read_text())
    sizes = config["model"]
    # Both programs pad the table for the products.
    sizes["vocab_size"] = (sizes["vocab_size"] + 127) // 128 * 128
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    torch.set_default_device(arguments.device)
    model, masters = make_model(sizes, arguments.kind)
    step = make_step(model, masters, config, arguments)
    sdpa, times, losses = measure(step, model, arguments)
    peak = torch.cuda.max_memory_allocated() if arguments.device == "cuda" else 0
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({"milliseconds": statistics.median(times), "peak_bytes": peak,
                      "parameters": parameters, "loss": losses[-1].item(),
                      "sdpa": sdpa,
                      "versions": {"torch": torch.__version__, "torch_cuda": torch.version.cuda,
                                   "torch_cudnn": torch.backends.cudnn.version()}}), flush=True)
    os._exit(0)  # Inductor's workers may take minutes to end


if __name__ == "__main__":
    main()
