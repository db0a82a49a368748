#!/usr/bin/env python3
"""Makes tests/golden/: the fp64 results of PyTorch and transformers for a small GPT-2 and Llama.

    python -m venv build/peers-venv
    build/peers-venv/bin/pip install -r scripts/requirements-peers.txt
    build/peers-venv/bin/python scripts/make_golden.py            # rewrites tests/golden/{gpt2,llama}

Each folder holds
    model/                 random weights as a Hugging Face directory (fp32)
    tokens.bin, tokens.idx the data, a Megatron indexed dataset (u16, several documents)
    config.json            the same run as a Trident config, paths relative to the repository root
    golden.json            losses, gradient norms before clipping and learning rates of every step
    gradients.safetensors  every gradient of step 1 before clipping, names and shapes as in model/
Everything is computed in fp64 and stored as fp32 (the JSON numbers as fp64). tests/peers/live_peer.py
draws other sizes and uses the same functions.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import struct
from dataclasses import dataclass, replace

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
import transformers

transformers.utils.logging.disable_progress_bar()

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclass
class Case:
    """One training run: the model's sizes, the data's shape, the optimizer's numbers."""

    architecture: str  # "gpt2", "llama", "mistral", "qwen2" or "qwen3"
    layers: int
    hidden: int
    heads: int
    groups: int
    ffn: int
    vocab: int
    positions: int
    sequence: int
    samples: int  # complete samples in the token stream: fewer than a run uses, so that it wraps
    tied: bool
    seed: int
    norm_epsilon: float = 1e-5
    rotary_base: float = 10000.0
    global_batch: int = 12
    micro_batch: int = 1
    iterations: int = 20
    lr: float = 1e-3
    min_lr: float = 1e-4
    warmup: int = 5
    betas: tuple = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    clipping: float = 1.0
    weight_std: float = 0.06
    optimizer: str = "AdamW"  # of PyTorch's: "AdamW", "Adam" or "Adafactor"
    padding: int | None = None  # pad_token_id of all but GPT-2
    attention_bias: bool = False  # of Llama and Qwen3
    mlp_bias: bool = False  # of Llama
    head_dim: int | None = None  # hidden / heads
    window: int | None = None  # of the layers in window_layers
    window_layers: tuple = ()
    rope_scaling: dict | None = None  # rope_type and its keys
    # num, topk, ffn, shared (ffn), norm, dense (layers), aux and z (factors of losses); of DeepSeek-V3
    # also groups, group_topk, scaling, rate
    experts: dict | None = None
    latent: dict | None = None  # of DeepSeek-V3's attention: q_rank, kv_rank, nope, rope, value
    mtp: int = 0  # layers of DeepSeek-V3 that predict further tokens
    mtp_factor: float = 0.1
    mtp_tables: bool = True  # the folder repeats both tables in each of them


GOLDEN_CASES = {
    "gpt2": Case("gpt2", layers=8, hidden=48, heads=4, groups=4, ffn=192, vocab=515, positions=24,
                 sequence=20, samples=197, tied=True, seed=20261),
    "llama": Case("llama", layers=8, hidden=48, heads=8, groups=4, ffn=132, vocab=515,
                  positions=24, sequence=20, samples=197, tied=False, seed=20262,
                  norm_epsilon=1e-6),
}


# ---- data ---------------------------------------------------------------------------------------


def draw_tokens(case):
    """(samples·s + 7) tokens: skewed frequencies and a rule for the next token, so there is
    something to learn; the 6 tokens too many must be left out by the reader."""
    generator = np.random.default_rng(case.seed)
    count = case.samples * case.sequence + 7
    fresh = np.minimum(generator.zipf(1.3, count) - 1, case.vocab - 1)
    tokens = np.empty(count, dtype=np.int64)
    tokens[0] = case.vocab - 1
    for i in range(1, count):
        follows = generator.random() < 0.5
        tokens[i] = (7 * tokens[i - 1] + 3) % case.vocab if follows else fresh[i]
    return tokens


def write_indexed_dataset(prefix, tokens, documents):
    """Megatron's .bin/.idx: u16 tokens split into `documents` sequences, a document each."""
    edges = np.linspace(0, len(tokens), documents + 1).astype(np.int64)
    lengths = np.diff(edges)
    tokens.astype("<u2").tofile(f"{prefix}.bin")
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1))
        file.write(lengths.astype("<i4").tobytes())
        file.write((2 * edges[:-1]).astype("<i8").tobytes())
        file.write(np.arange(documents + 1).astype("<i8").tobytes())


def batch(case, tokens, iteration):
    """Inputs and labels (G, s) of `iteration` (from 0): samples kG … kG + G − 1, wrapping."""
    first = iteration * case.global_batch
    rows = [(i % case.samples) * case.sequence for i in range(first, first + case.global_batch)]
    block = np.stack([tokens[r : r + case.sequence + 1] for r in rows])
    return torch.from_numpy(block[:, :-1].copy()), torch.from_numpy(block[:, 1:].copy())


# ---- model --------------------------------------------------------------------------------------


def head_size(case):
    return case.head_dim or case.hidden // case.heads


def hugging_face_config(case):
    if case.architecture == "gpt2":
        return transformers.GPT2Config(
            vocab_size=case.vocab, n_positions=case.positions, n_embd=case.hidden,
            n_layer=case.layers, n_head=case.heads, n_inner=case.ffn, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=case.norm_epsilon,
            activation_function="gelu_new", tie_word_embeddings=True, bos_token_id=0,
            eos_token_id=0)
    kind = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
            "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config,
            "mixtral": transformers.MixtralConfig, "qwen2_moe": transformers.Qwen2MoeConfig,
            "qwen3_moe": transformers.Qwen3MoeConfig,
            "deepseek_v3": transformers.DeepseekV3Config,
            "gpt_oss": transformers.GptOssConfig,
            "olmoe": transformers.OlmoeConfig}[case.architecture]
    own = {}
    if case.architecture in ("llama", "qwen3", "qwen3_moe", "deepseek_v3", "olmoe"):
        own["attention_bias"] = case.attention_bias
    if case.architecture == "llama":
        own["mlp_bias"] = case.mlp_bias
    experts = case.experts
    if case.architecture in ("mixtral", "gpt_oss"):
        own.update(num_local_experts=experts["num"], num_experts_per_tok=experts["topk"])
    if case.architecture == "qwen2_moe":
        own["shared_expert_intermediate_size"] = experts["shared"]
    if case.architecture in ("qwen2_moe", "qwen3_moe"):
        own.update(num_experts=experts["num"], num_experts_per_tok=experts["topk"],
                   moe_intermediate_size=experts["ffn"], norm_topk_prob=experts["norm"],
                   mlp_only_layers=list(experts["dense"]))
    if case.architecture == "olmoe":
        own.update(num_experts=experts["num"], num_experts_per_tok=experts["topk"],
                   norm_topk_prob=experts["norm"])
    if case.architecture == "deepseek_v3":
        latent = case.latent
        own.update(q_lora_rank=latent["q_rank"], kv_lora_rank=latent["kv_rank"],
                   qk_nope_head_dim=latent["nope"], qk_rope_head_dim=latent["rope"],
                   v_head_dim=latent["value"], n_routed_experts=experts["num"],
                   num_experts_per_tok=experts["topk"], moe_intermediate_size=experts["ffn"],
                   n_shared_experts=experts["shared"] // experts["ffn"],
                   n_group=experts["groups"], topk_group=experts["group_topk"],
                   first_k_dense_replace=len(experts["dense"]), norm_topk_prob=experts["norm"],
                   routed_scaling_factor=experts["scaling"],
                   num_nextn_predict_layers=case.mtp)
    if case.architecture in ("mistral", "mixtral"):
        own["sliding_window"] = case.window
    elif case.architecture == "gpt_oss":
        own.update(sliding_window=case.window or 128, layer_types=[
            "sliding_attention" if i in case.window_layers else "full_attention"
            for i in range(case.layers)])
    elif case.window and case.architecture == "qwen3_moe":
        own.update(use_sliding_window=True, sliding_window=case.window)
    elif case.window:
        own.update(use_sliding_window=True, sliding_window=case.window, layer_types=[
            "sliding_attention" if i in case.window_layers else "full_attention"
            for i in range(case.layers)])
    # Qwen3 has a default of its own, Qwen2 no such key but reads one that is given.
    if case.head_dim or case.architecture in ("qwen3", "mixtral", "gpt_oss"):
        own["head_dim"] = head_size(case)
    return kind(
        vocab_size=case.vocab, max_position_embeddings=case.positions, hidden_size=case.hidden,
        intermediate_size=case.ffn, num_hidden_layers=case.layers, num_attention_heads=case.heads,
        num_key_value_heads=case.groups, rms_norm_eps=case.norm_epsilon, hidden_act="silu",
        rope_parameters={**(case.rope_scaling or {"rope_type": "default"}),
                         "rope_theta": case.rotary_base},
        tie_word_embeddings=case.tied, bos_token_id=0, eos_token_id=0,
        pad_token_id=case.padding, **own)


def rotary_frequencies(rope, head_size):
    """The frequencies and the factor of sines and cosines, by the papers' formulas, in fp64."""
    base, kind = rope["rope_theta"], rope["rope_type"]
    plain = base ** -(torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
    if kind == "default":
        return plain, 1.0
    factor = rope["factor"]
    if kind == "linear":
        return plain / factor, 1.0
    original = rope["original_max_position_embeddings"]
    if kind == "llama3":
        turns = original * plain / (2 * math.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return kept * plain + (1 - kept) * plain / factor, 1.0
    assert kind == "yarn"
    edges = [head_size * math.log(original / (2 * math.pi * rope.get(key, usual)))
             / (2 * math.log(base))
             for key, usual in (("beta_fast", 32), ("beta_slow", 1))]
    if rope.get("truncate", True):
        edges = [math.floor(edges[0]), math.ceil(edges[1])]
    low, high = max(edges[0], 0), min(edges[1], head_size - 1)
    ramp = ((torch.arange(head_size // 2) - low) / (max(high - low, 0.001))).double().clamp(0, 1)
    amplitude = rope.get("attention_factor")
    if amplitude is None:
        scale = [rope.get("mscale"), rope.get("mscale_all_dim")]
        scale = scale if all(scale) else [1, 0]
        amplitude = ((0.1 * scale[0] * math.log(factor) + 1)
                     / (0.1 * scale[1] * math.log(factor) + 1))
    return plain * (1 - ramp) + plain / factor * ramp, amplitude


class Float64Rotary(torch.nn.Module):
    """transformers computes the angles in fp32 whatever the model's dtype; this is the formula."""

    def __init__(self, rope, head_size, theirs, doubles):
        super().__init__()
        self.doubles = doubles  # an angle for each element of a head, not of each pair
        frequencies, self.amplitude = rotary_frequencies(rope, head_size)
        torch.testing.assert_close(frequencies.float(), theirs.inv_freq.float(), rtol=1e-6, atol=0)
        assert math.isclose(self.amplitude, theirs.attention_scaling, rel_tol=1e-12)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        angles = torch.cat([angles, angles], dim=-1) if self.doubles else angles
        return angles.cos() * self.amplitude, angles.sin() * self.amplitude


class Float64Router(torch.nn.Module):
    """transformers takes the softmax in fp32; this is the formula. Keeps the last logits, and the
    least distance between the logits of a token's last expert and the next one so far."""

    def __init__(self, theirs):
        super().__init__()
        self.weight, self.top_k = theirs.weight, theirs.top_k
        self.normalizes = getattr(theirs, "norm_topk_prob", True)  # Mixtral has no choice
        self.gap = math.inf

    def forward(self, x):
        self.logits = F.linear(x.reshape(-1, x.shape[-1]), self.weight)
        best = self.logits.detach().sort(dim=-1, descending=True).values
        if self.top_k < best.shape[-1]:
            self.gap = min(self.gap, float((best[:, self.top_k - 1] - best[:, self.top_k]).min()))
        weights, self.chosen = self.logits.softmax(dim=-1).topk(self.top_k, dim=-1)
        if self.normalizes:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return self.logits, weights, self.chosen

    def probabilities(self):
        return self.logits.softmax(dim=-1)


class Float64LogitRouter(Float64Router):
    """gpt-oss's router: the softmax over the logits of the experts that a token takes."""

    def __init__(self, theirs):
        super().__init__(theirs)
        self.bias = theirs.bias

    def forward(self, x):
        self.logits = F.linear(x.reshape(-1, x.shape[-1]), self.weight, self.bias)
        best = self.logits.detach().sort(dim=-1, descending=True).values
        if self.top_k < best.shape[-1]:
            self.gap = min(self.gap, float((best[:, self.top_k - 1] - best[:, self.top_k]).min()))
        top, self.chosen = self.logits.topk(self.top_k, dim=-1)
        return self.logits, top.softmax(dim=-1), self.chosen


class Float64SigmoidRouter(Float64Router):
    """DeepSeek-V3's router, whose biases count for the choice alone."""

    def __init__(self, theirs):
        super().__init__(theirs)
        self.register_buffer("bias", theirs.e_score_correction_bias)
        self.groups, self.group_topk = theirs.num_group, theirs.topk_group
        self.scaling = theirs.routed_scaling_factor

    def note_gap(self, values, count):
        best = values.detach().sort(dim=-1, descending=True).values
        if count < best.shape[-1]:
            gaps = best[:, count - 1] - best[:, count]
            self.gap = min(self.gap, float(gaps.min()))

    def forward(self, x):
        self.logits = F.linear(x.reshape(-1, x.shape[-1]), self.weight)
        scores = self.logits.sigmoid()
        values = scores + self.bias
        by_group = values.view(len(values), self.groups, -1)
        group_values = by_group.topk(2, dim=-1).values.sum(dim=-1)
        self.note_gap(group_values, self.group_topk)
        kept = torch.zeros_like(group_values).scatter(
            1, group_values.topk(self.group_topk, dim=-1).indices, 1.0)
        left_out = kept[:, :, None].expand_as(by_group).reshape(values.shape) == 0
        values = values.masked_fill(left_out, -math.inf)
        self.note_gap(values, self.top_k)
        self.chosen = values.topk(self.top_k, dim=-1).indices
        weights = scores.gather(1, self.chosen)
        if self.normalizes:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return self.logits, weights * self.scaling, self.chosen

    def probabilities(self):
        scores = self.logits.sigmoid()
        return scores / (scores.sum(dim=-1, keepdim=True) + 1e-20)

    def balance(self, rate):
        """Moves the biases after a step. They are fp32."""
        counts = F.one_hot(self.chosen, len(self.bias)).sum(dim=(0, 1)).double()
        self.bias.copy_((self.bias + rate * (counts.mean() - counts).sign()).float())


def routers(model):
    return [m for m in model.modules() if isinstance(m, Float64Router)]


def auxiliary_loss(model, case, samples):
    """The losses of the routers after a forward pass: the balancing loss of each sample (DeepSeek-V2,
    section 2.1.4) and the z-loss (Zoph 2022), each the mean over samples or tokens, summed over
    layers."""
    total = 0
    for router in routers(model):
        logits = router.logits
        count = logits.shape[-1]
        probabilities = router.probabilities().view(samples, -1, count)
        chosen = F.one_hot(router.chosen, count).sum(dim=1).view(samples, -1, count)
        shares = chosen.double().mean(dim=1) * count / router.top_k
        balance = (shares * probabilities.mean(dim=1)).sum(dim=-1).mean()
        z = logits.logsumexp(dim=-1).square().mean()
        total = total + case.experts["aux"] * balance + case.experts["z"] * z
    return total


def add_mtp_layers(model, case):
    """Appends layers that predict further tokens, which transformers doesn't run, as DeepSeek's
    report describes them (DeepSeek-AI 2024, section 2.2) and its release names them."""
    deepseek = transformers.models.deepseek_v3.modeling_deepseek_v3
    for i in range(case.mtp):
        layer = deepseek.DeepseekV3DecoderLayer(model.config, case.layers + i)
        for name in ("enorm", "hnorm"):
            setattr(layer, name, deepseek.DeepseekV3RMSNorm(case.hidden, eps=case.norm_epsilon))
        layer.eh_proj = torch.nn.Linear(2 * case.hidden, case.hidden, bias=False)
        layer.shared_head = torch.nn.Module()
        layer.shared_head.norm = deepseek.DeepseekV3RMSNorm(case.hidden, eps=case.norm_epsilon)
        model.model.layers.append(layer)


def mtp_loss(model, case, inputs, labels):
    """The losses of further tokens, each a sum over the positions that have such a token, divided
    by the number of all positions."""
    if not case.mtp:
        return 0
    hidden = model.model(input_ids=inputs, use_cache=False).last_hidden_state
    positions = torch.arange(case.sequence)[None]
    rotary = model.model.rotary_emb(hidden, positions)
    total = 0
    for k in range(1, case.mtp + 1):
        layer = model.model.layers[case.layers + k - 1]
        tokens = labels.clone()  # what stands behind the known ones doesn't count
        tokens[:, : case.sequence - k + 1] = labels[:, k - 1 :]
        embeddings = layer.enorm(model.model.embed_tokens(tokens))
        x = layer.eh_proj(torch.cat([embeddings, layer.hnorm(hidden)], dim=-1))
        x = layer(x, position_embeddings=rotary, position_ids=positions)
        hidden = layer.shared_head.norm(x[0] if isinstance(x, tuple) else x)
        logits = model.lm_head(hidden[:, : case.sequence - k])
        total = total + F.cross_entropy(logits.flatten(0, 1), labels[:, k:].flatten(),
                                        reduction="sum")
    return case.mtp_factor / case.mtp * total / labels.numel()


def use_float64(model):
    """`model` in fp64 throughout: replaces the parts of transformers that go through fp32."""
    model = model.double()
    # The eager path takes its softmax in fp32, but for gpt-oss, which has no other.
    is_gpt_oss = model.config.model_type == "gpt_oss"
    model.config._attn_implementation = "eager" if is_gpt_oss else "sdpa"
    model.config._experts_implementation = "eager"  # the others have no fp64
    for block in [m for m in model.modules() if hasattr(m, "gate") and hasattr(m, "experts")]:
        biased = hasattr(block.gate, "e_score_correction_bias")
        block.gate = (Float64SigmoidRouter if biased else Float64Router)(block.gate)
    for block in [m for m in model.modules() if is_gpt_oss and hasattr(m, "router")]:
        block.router = Float64LogitRouter(block.router)
    if model.config.model_type != "gpt2":
        c = model.config
        size = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        model.model.rotary_emb = Float64Rotary(c.rope_parameters, size, model.model.rotary_emb,
                                               not is_gpt_oss)
        for norm in [m for m in model.modules() if type(m).__name__.endswith("RMSNorm")]:
            norm.forward = (lambda x, n=norm:
                            F.rms_norm(x, x.shape[-1:], n.weight, n.variance_epsilon))
    return model.train()


def draw_model(case):
    """Random weights, none at its usual start: norm gains near 1, every bias away from 0."""
    torch.manual_seed(case.seed)
    config = hugging_face_config(case)
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    add_mtp_layers(model, case)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, dtype=torch.float64)
            if name.endswith(("bias", "sinks")):
                value = 0.1 * noise
            elif parameter.dim() >= 2:
                value = case.weight_std * noise
            else:
                value = 1.0 + 0.1 * noise
            parameter.copy_(value.float())
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.1 * torch.randn(buffer.shape))
    return model


def save_model(model, case, folder):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if case.mtp and case.mtp_tables:
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        for i in range(case.layers, case.layers + case.mtp):
            for own, table in (("embed_tokens", model.model.embed_tokens),
                               ("shared_head.head", model.lm_head)):
                tensors[f"model.layers.{i}.{own}.weight"] = table.weight.detach().clone()
        safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)


def mean_loss(model, inputs, labels):
    logits = model(input_ids=inputs, use_cache=False).logits
    assert logits.dtype == next(model.parameters()).dtype
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def note_routers(golden, model, case):
    """Appends statistics of the routers in the last forward pass: the mean entropy of each one's
    probabilities, and of softmax routers transformers' own balancing loss."""
    if not case.experts:
        return
    with torch.no_grad():
        entropies = [float(torch.special.entr(router.probabilities()).sum(dim=-1).mean())
                     for router in routers(model)]
        golden.setdefault("router_entropies", []).append(entropies)
        if case.architecture != "deepseek_v3":
            of_all = transformers.models.mixtral.modeling_mixtral.load_balancing_loss_func
            golden.setdefault("load_balancing_losses", []).append(float(of_all(
                tuple(router.logits for router in routers(model)), case.experts["num"],
                case.experts["topk"])))


# ---- training -----------------------------------------------------------------------------------


def learning_rate(case, k):
    """Linear warm-up, then cosine to min_lr; k from 0."""
    if k < case.warmup:
        return case.lr * (k + 1) / case.warmup
    t = min(1.0, (k + 1 - case.warmup) / (case.iterations - case.warmup))
    return case.min_lr + (case.lr - case.min_lr) * (1 + math.cos(math.pi * t)) / 2


def check_gradient(model, case, tokens):
    """The gradient against a central difference along itself: holds only if all of it is fp64.
    Moves the weights of `model`."""
    inputs, labels = batch(case, tokens, 0)

    def objective():
        return mean_loss(model, inputs, labels) + mtp_loss(model, case, inputs, labels)

    parameters = list(model.parameters())
    gradients = torch.autograd.grad(objective(), parameters)
    norm = math.sqrt(sum(float((g * g).sum()) for g in gradients))
    starts = [p.detach().clone() for p in parameters]
    for length in (1e-5, 1e-6, 1e-7):
        step = length / norm
        sides, choices = [], []
        with torch.no_grad():
            for sign in (1, -1):
                for p, start, g in zip(parameters, starts, gradients):
                    p.copy_(start + sign * step * g)
                sides.append(float(objective()))
                choices.append([r.chosen.sort(dim=-1).values for r in routers(model)])
        numeric = (sides[0] - sides[1]) / (2 * step) / norm
        # Where a token takes another expert, the loss jumps.
        if all(torch.equal(a, b) for a, b in zip(*choices)):
            break
    if abs(numeric - norm) > 1e-7 * norm:
        raise RuntimeError(f"gradient norm {norm}, by differences {numeric}")


def reference_run(model, case, tokens):
    """Trains `model` (fp64) with PyTorch's optimizer. Returns golden.json's content and the first
    step's gradients before clipping (fp64, names as in a saved model)."""
    parameters = dict(model.named_parameters())  # a tied weight once, under its first name
    # The biases of all experts of a layer are one tensor.
    decays = {n: p.dim() >= 2 and not n.endswith("bias") for n, p in parameters.items()}
    groups = [{"params": [p for n, p in parameters.items() if decays[n]],
               "weight_decay": case.weight_decay},
              {"params": [p for n, p in parameters.items() if not decays[n]], "weight_decay": 0.0}]
    if case.optimizer == "Adafactor":
        # Adafactor's floor of a variance depends on the dtype; this is the floor of fp32.
        optimizer = torch.optim.Adafactor(groups, lr=case.lr, eps=(2.0**-23, 1e-3))
    else:
        optimizer = getattr(torch.optim, case.optimizer)(
            groups, lr=case.lr, betas=case.betas, eps=case.eps)
    golden = {"losses": [], "grad_norms": [], "learning_rates": []}
    gradients = None
    for k in range(case.iterations):
        optimizer.zero_grad()
        inputs, labels = batch(case, tokens, k)
        loss = mean_loss(model, inputs, labels)
        further = mtp_loss(model, case, inputs, labels)
        (loss + further + auxiliary_loss(model, case, len(inputs))).backward()
        if gradients is None:
            gradients = {name: p.grad.clone() for name, p in parameters.items()}
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), case.clipping)
        rate = learning_rate(case, k)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        for router in routers(model):
            if isinstance(router, Float64SigmoidRouter):
                router.balance(case.experts["rate"])
        note_routers(golden, model, case)
        golden["losses"].append(float(loss.detach()))
        golden["grad_norms"].append(float(norm))
        golden["learning_rates"].append(rate)
        if case.mtp:
            golden.setdefault("mtp_losses", []).append(float(further.detach()))
    return golden, gradients


def noise(case, tokens):
    """The effect of rounding the weights to fp32 once on a run in fp64: of each step, the relative
    differences of the losses and of the gradient norms, and the first gradients of both runs. Adam's
    first steps divide by the root of few squares, which makes it large for a few models."""
    runs = []
    for scale in (0.0, 1e-7, -1e-7):
        model = use_float64(draw_model(case))
        generator = torch.Generator().manual_seed(case.seed)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + scale * torch.randn(p.shape, generator=generator, dtype=p.dtype))
        runs.append(reference_run(model, case, tokens))
    (exact, _), *others = runs
    return {"gradients": [gradients for _, gradients in others]} | {
        key: [max(abs(run[key][k] / exact[key][k] - 1) for run, _ in others)
              for k in range(case.iterations)] for key in ("losses", "grad_norms")}


# ---- files --------------------------------------------------------------------------------------


def trident_config(case, folder, run_folder):
    """The run as a Trident config on one rank; `folder` holds model/ and tokens.bin/.idx."""
    model = {
        "architecture": case.architecture, "num_layers": case.layers, "hidden_size": case.hidden,
        "num_attention_heads": case.heads, "num_query_groups": case.groups,
        "ffn_hidden_size": case.ffn, "max_position_embeddings": case.positions,
        "vocab_size": case.vocab, "tie_word_embeddings": case.tied,
        "norm_epsilon": case.norm_epsilon}
    if case.architecture != "gpt2":
        model["rotary_base"] = case.rotary_base
    for key in ("attention_bias", "mlp_bias"):
        if getattr(case, key):
            model[key] = True
    if case.head_dim:
        model["head_dim"] = case.head_dim
    if case.window:
        model["sliding_window"] = case.window
        model["window_layers"] = list(case.window_layers)
    if case.rope_scaling:
        model["rope_scaling"] = case.rope_scaling
    if case.experts:
        model["moe"] = {
            "num_experts": case.experts["num"], "router_topk": case.experts["topk"],
            "ffn_hidden_size": case.experts["ffn"], "norm_topk_prob": case.experts["norm"],
            "router_load_balancing_type": "seq_aux_loss",  # the folder says none
            "shared_expert_intermediate_size": case.experts["shared"],
            "aux_loss_coeff": case.experts["aux"], "z_loss_coeff": case.experts["z"],
            "layer_freq": [int(i not in case.experts["dense"]) for i in range(case.layers)]}
    if case.latent:
        model.update(q_lora_rank=case.latent["q_rank"] or 0, kv_lora_rank=case.latent["kv_rank"],
                     qk_head_dim=case.latent["nope"], qk_pos_emb_head_dim=case.latent["rope"],
                     v_head_dim=case.latent["value"])
        model["moe"].update(router_num_groups=case.experts["groups"],
                            router_group_topk=case.experts["group_topk"],
                            router_topk_scaling_factor=case.experts["scaling"],
                            router_bias_update_rate=case.experts["rate"])
    if case.mtp:
        model.update(mtp_num_layers=case.mtp, mtp_loss_scaling_factor=case.mtp_factor)
    params = {"lr": case.lr, "betas": list(case.betas), "eps": case.eps,
              "weight_decay": case.weight_decay}
    if case.optimizer == "Adafactor":
        del params["betas"], params["eps"]
    return {
        "model": model,
        "batch": {"global_batch_size": case.global_batch, "micro_batch_size": case.micro_batch},
        "optimizer": {"type": case.optimizer, "params": params},
        "gradient_clipping": case.clipping,
        "scheduler": {"type": "cosine", "warmup_iters": case.warmup, "min_lr": case.min_lr},
        "data": {"train": [{"path": f"{folder}/tokens", "weight": 1.0}],
                 "sequence_length": case.sequence, "shuffle": False},
        "training": {"train_iters": case.iterations, "seed": 1},
        "checkpoint": {"load": f"{folder}/model"},
        "runtime": {"device": "cpu", "transport": "local", "threads_per_rank": 1},
        "logging": {"dir": run_folder, "overwrite": True, "dump_gradients_at": [1]}}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def make_case(case, folder, named_folder, run_folder):
    """Writes everything of one case into `folder`; its config calls that folder `named_folder`.
    Returns (golden, gradients, trained model, tokens)."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = draw_tokens(case)
    write_indexed_dataset(folder / "tokens", tokens, documents=5)
    model = draw_model(case)
    save_model(model, case, folder / "model")
    write_json(folder / "config.json", trident_config(case, named_folder, run_folder))
    model = use_float64(model)
    # The reference lacks a part of the gradient of a padding token's row.
    whole = replace(case, padding=None)
    check_gradient(use_float64(draw_model(whole)), whole, tokens)
    golden, gradients = reference_run(model, case, tokens)
    write_json(folder / "golden.json", golden)
    safetensors.torch.save_file({n: g.float().contiguous() for n, g in gradients.items()},
                                folder / "gradients.safetensors")
    (folder / "gradients.safetensors").chmod(0o644)
    return golden, gradients, model, tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests" / "golden",
                        help="where the folders go (default: tests/golden)")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    for name, case in GOLDEN_CASES.items():
        golden, _, _, _ = make_case(case, out / name, f"tests/golden/{name}",
                                    f"build/golden-{name}")
        clipped = sum(norm > case.clipping for norm in golden["grad_norms"])
        print(f"{name}: loss {golden['losses'][0]:.6f} to {golden['losses'][-1]:.6f}, "
              f"{clipped} of {case.iterations} steps clipped, "
              f"gradient norm {min(golden['grad_norms']):.3f} to {max(golden['grad_norms']):.3f}")


if __name__ == "__main__":
    main()
