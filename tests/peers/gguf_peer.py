#!/usr/bin/env python3
"""Reads the files of `trident export FILE.gguf` with other programs and compares the results.

    python tests/peers/gguf_peer.py [--llama-cpp] [--seed N] [--program build/release/trident]

- With the `gguf` package, for a GPT-2 and two Llamas with drawn weights, in each way to store them:
  keys, bitwise identical tensors (Q8_0 as the package itself rounds), refusals.
- With --llama-cpp (scripts/requirements-llama-cpp.txt, which takes minutes to build) by llama.cpp:
  200 greedy tokens and the perplexity of transformers' model from the same weights; texts in many
  scripts to the ids of `tokenizers`, and back; a model of bytes.
A failure prints the seed. Ends with `N passed, 0 failed`.
"""

import argparse
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false"}

import gguf
import numpy
import tokenizer_peer
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

ROOT = tokenizer_peer.ROOT
TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0"}
# Relative tolerances of perplexities. llama.cpp always rounds GELU to F16, and rounds the factors
# of F16 and Q8_0 products to these types.
TOLERANCE = {"f32": 1e-3, "f16": 1e-3, "q8_0": 1e-2}


def gpt2():
    tokenizer = tokenizer_peer.tokenize_corpus.gpt2_tokenizer()
    tokenizer.add_special_tokens(["<|endoftext|>"])  # llama.cpp always treats it as special
    return tokenizer


def smollm(texts):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|endoftext|>"]))
    return tokenizer


def plain_byte_level(texts, pattern, ignore_merges):
    """A tokenizer like those of Llama 3 and Qwen 2, without added tokens, which llama.cpp treats differently."""
    document = json.loads(tokenizer_peer.byte_level(texts, pattern).to_str())
    document["added_tokens"] = [one for one in document["added_tokens"] if one["special"]]
    document["model"]["ignore_merges"] = ignore_merges
    if not ignore_merges:
        document["normalizer"] = {"type": "NFC"}
    return tokenizers.Tokenizer.from_str(json.dumps(document))


class Model:
    """A model with drawn weights as transformers saves it."""

    def __init__(self, rng, folder, architecture, tied, tokenizer=None, entries=None, **sizes):
        torch.manual_seed(rng.randrange(2**31))
        entries = entries or (tokenizer.get_vocab_size() if tokenizer else rng.randrange(200, 400))
        hidden = rng.choice((48, 64, 96))
        # The weights are large enough for predictions to differ between positions.
        common = {"vocab_size": entries, "initializer_range": 0.15, "tie_word_embeddings": tied,
                  "bos_token_id": None, "eos_token_id": 0}
        if architecture == "gpt2":
            self.config = transformers.GPT2Config(**common | {
                "n_layer": rng.choice((2, 3)), "n_embd": hidden, "n_head": 4, "n_positions": 256,
                "n_inner": rng.choice((None, 160)), "layer_norm_epsilon": 1e-4} | sizes)
            self.model = transformers.GPT2LMHeadModel(self.config).eval()
        else:
            kind = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
                    "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config,
                    "mixtral": transformers.MixtralConfig, "olmoe": transformers.OlmoeConfig,
                    "qwen2_moe": transformers.Qwen2MoeConfig,
                    "qwen3_moe": transformers.Qwen3MoeConfig,
                    "deepseek_v3": transformers.DeepseekV3Config,
                    "gpt_oss": transformers.GptOssConfig}
            self.config = kind[architecture](**common | {
                "num_hidden_layers": rng.choice((2, 3)), "hidden_size": hidden,
                "num_attention_heads": 4, "num_key_value_heads": rng.choice((1, 2, 4)),
                "intermediate_size": rng.choice((96, 112)), "max_position_embeddings": 256,
                "rope_parameters": {"rope_type": "default", "rope_theta": rng.choice((1e4, 5e5))},
                "rms_norm_eps": 1e-5} | sizes)
            if architecture == "gpt_oss":  # a flag of transformers' attention with sinks
                self.config._attn_implementation = "eager"
            self.model = transformers.AutoModelForCausalLM.from_config(self.config).eval()
        # The vectors should not be only ones and zeros.
        with torch.no_grad():
            for name, parameter in [*self.model.named_parameters(), *self.model.named_buffers()]:
                if parameter.dim() == 1 and "inv_freq" not in name or name.endswith("_bias"):
                    parameter += 0.1 * torch.randn_like(parameter)
        self.model.to(rng.choice((torch.float32, torch.bfloat16, torch.float16)))
        self.weights = folder
        self.model.save_pretrained(folder)
        # The model is loaded again, as a change of type would also round the angles of rotary
        # positions.
        self.model = type(self.model).from_pretrained(folder, dtype=torch.float32).eval()
        if tokenizer:
            tokenizer.save(str(folder / "tokenizer.json"))

    def tensors(self):
        """The tensors with llama.cpp's names and order of elements (its convert_hf_to_gguf.py)."""
        stems = {
            "transformer.wte": "token_embd", "transformer.wpe": "position_embd",
            "transformer.ln_f": "output_norm", "ln_1": "attn_norm", "attn.c_attn": "attn_qkv",
            "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up",
            "mlp.c_proj": "ffn_down", "model.embed_tokens": "token_embd",
            "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
            "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
            "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
            "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
            "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
            "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
            "mlp.shared_expert.up_proj": "ffn_up_shexp",
            "mlp.shared_expert.down_proj": "ffn_down_shexp",
            "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
            "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
            "mlp.shared_experts.up_proj": "ffn_up_shexp",
            "mlp.shared_experts.down_proj": "ffn_down_shexp",
            "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
            "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
            "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
            "mlp.router": "ffn_gate_inp"}
        if self.config.model_type == "gpt_oss":
            stems["post_attention_layernorm"] = "post_attention_norm"
        result = {}
        for name, value in self.model.state_dict().items():
            if name == "lm_head.weight" and self.config.tie_word_embeddings:
                continue
            stem, kind = name.rsplit(".", 1)
            values = value.numpy()
            block = f"blk.{stem.split('.')[2]}" if stem.startswith("model.layers.") else ""
            if kind == "sinks":
                result[f"{block}.attn_sinks.weight"] = values
                continue
            if kind == "e_score_correction_bias":
                result[f"{block}.exp_probs_b.bias"] = values
                continue
            if stem.endswith("mlp.experts") and self.config.model_type == "gpt_oss":
                kind, to = kind.removesuffix("_bias"), "bias" if kind.endswith("_bias") else "weight"
                if to == "weight":
                    values = values.swapaxes(1, 2)
                if kind == "down_proj":
                    result[f"{block}.ffn_down_exps.{to}"] = values
                else:
                    result[f"{block}.ffn_gate_exps.{to}"] = values[:, ::2]
                    result[f"{block}.ffn_up_exps.{to}"] = values[:, 1::2]
                continue
            if stem.endswith("mlp.experts"):
                if kind == "down_proj":
                    result[f"{block}.ffn_down_exps.weight"] = values
                else:
                    half = values.shape[1] // 2
                    result[f"{block}.ffn_gate_exps.weight"] = values[:, :half]
                    result[f"{block}.ffn_up_exps.weight"] = values[:, half:]
                continue
            if stem.endswith("shared_expert_gate"):
                values = values[0]
            for layers in ("transformer.h.", "model.layers."):
                if stem.startswith(layers):
                    layer, stem = stem[len(layers):].split(".", 1)
                    if values.ndim == 2 and layers == "transformer.h.":
                        values = values.T
                    heads = {"self_attn.q_proj": self.config.num_attention_heads,
                             "self_attn.k_proj": getattr(self.config, "num_key_value_heads", 0)}
                    if stem in heads and self.config.model_type in ("llama", "mistral", "mixtral"):
                        halves = values.reshape(heads[stem], 2, -1, *values.shape[1:])
                        values = halves.swapaxes(1, 2).reshape(values.shape)
                    result[f"blk.{layer}.{stems[stem]}.{kind}"] = values
                    break
            else:
                result[f"{stems[stem]}.{kind}"] = values
        rope = getattr(self.config, "rope_parameters", None) or {}
        if rope.get("rope_type") == "llama3":
            rotary = self.model.model.rotary_emb
            plain = rope["rope_theta"] ** -(
                numpy.arange(0, self.head_dim(), 2, dtype=numpy.float64) / self.head_dim())
            result["rope_freqs.weight"] = plain / rotary.inv_freq.double().numpy()
        return result

    def head_dim(self):
        return getattr(self.config, "head_dim", None) or \
            self.config.hidden_size // self.config.num_attention_heads

    def loss(self, ids):
        with torch.no_grad():
            logits = self.model(torch.tensor([ids[:-1]])).logits[0].double()
        return torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])).item()


def export(program, model, path, outtype, *more):
    done = subprocess.run([program, "export", model.weights, path, "--outtype", outtype, *more],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_file(program, model, outtype, path):
    export(program, model, path, outtype)
    reader = gguf.GGUFReader(path)
    config = model.config
    kind = {"mistral": "llama", "mixtral": "llama", "qwen2_moe": "qwen2moe",
            "qwen3_moe": "qwen3moe", "deepseek_v3": "deepseek2",
            "gpt_oss": "gpt-oss"}.get(config.model_type, config.model_type)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    wanted = model.tensors()
    def is_plain(name, values):
        return (values.ndim == 1 or name == "position_embd.weight" or "ffn_gate_inp" in name
                or name.endswith(".bias"))

    blocks = any(not is_plain(name, values) and values.shape[-1] % 32 == 0
                 for name, values in wanted.items())
    expected = {
        "general.architecture": kind, f"{kind}.block_count": config.num_hidden_layers,
        f"{kind}.embedding_length": config.hidden_size, f"{kind}.context_length": 256,
        f"{kind}.attention.head_count": 4, f"{kind}.vocab_size": config.vocab_size,
        "general.file_type": {"f32": 0, "f16": 1, "q8_0": 7 if blocks else 1, "bf16": 32}[outtype]}
    if kind == "gpt2":
        expected |= {"gpt2.feed_forward_length": config.n_inner or 4 * config.n_embd,
                     "gpt2.attention.layer_norm_epsilon": float(numpy.float32(1e-4))}
    else:
        expected |= {f"{kind}.feed_forward_length": config.intermediate_size,
                     f"{kind}.attention.head_count_kv": config.num_key_value_heads,
                     f"{kind}.rope.dimension_count": model.head_dim(),
                     f"{kind}.rope.freq_base": config.rope_parameters["rope_theta"],
                     f"{kind}.attention.layer_norm_rms_epsilon": float(numpy.float32(1e-5))}
        if kind == "deepseek2":
            scores = config.qk_nope_head_dim + config.qk_rope_head_dim
            expected |= {
                f"{kind}.attention.layer_norm_rms_epsilon": float(numpy.float32(1e-6)),
                f"{kind}.rope.dimension_count": config.qk_rope_head_dim,
                f"{kind}.attention.key_length": scores,
                f"{kind}.attention.value_length": config.v_head_dim,
                **({f"{kind}.attention.q_lora_rank": config.q_lora_rank}
                   if config.q_lora_rank else {}),
                f"{kind}.attention.kv_lora_rank": config.kv_lora_rank,
                f"{kind}.leading_dense_block_count": config.first_k_dense_replace,
                f"{kind}.expert_shared_count": config.n_shared_experts,
                f"{kind}.expert_group_count": config.n_group,
                f"{kind}.expert_group_used_count": config.topk_group,
                f"{kind}.expert_gating_func": 2,
                f"{kind}.expert_weights_norm": config.norm_topk_prob,
                f"{kind}.expert_weights_scale": config.routed_scaling_factor}
        elif model.head_dim() != config.hidden_size // 4:
            expected |= {f"{kind}.attention.key_length": model.head_dim(),
                         f"{kind}.attention.value_length": model.head_dim()}
        if hasattr(config, "num_experts_per_tok"):
            own = getattr(config, "moe_intermediate_size", config.intermediate_size)
            count = getattr(config, "n_routed_experts", None) or config.num_local_experts \
                if config.model_type in ("deepseek_v3", "gpt_oss") else config.num_experts
            expected |= {f"{kind}.expert_count": count,
                         f"{kind}.expert_used_count": config.num_experts_per_tok,
                         f"{kind}.expert_feed_forward_length": own}
        if config.model_type == "qwen2_moe":
            expected[f"{kind}.expert_shared_feed_forward_length"] = \
                config.shared_expert_intermediate_size
        if kind == "gpt-oss":
            expected[f"{kind}.attention.sliding_window"] = config.sliding_window
        rope = config.rope_parameters
        if rope["rope_type"] in ("linear", "yarn"):
            expected |= {f"{kind}.rope.scaling.type": rope["rope_type"],
                         f"{kind}.rope.scaling.factor": rope["factor"]}
        if rope["rope_type"] == "yarn":
            expected[f"{kind}.rope.scaling.original_context_length"] = \
                rope["original_max_position_embeddings"]
    for name, value in expected.items():
        assert fields[name] == value, (name, fields[name], value)
    assert {tensor.name for tensor in reader.tensors} == set(wanted)
    for tensor in reader.tensors:
        values = wanted[tensor.name]
        if tensor.name == "rope_freqs.weight":  # transformers rounds its frequencies to fp32
            numpy.testing.assert_allclose(numpy.asarray(tensor.data), values, rtol=1e-6)
            continue
        assert tensor.shape.tolist() == list(values.shape[::-1]), tensor.name
        stored = "F32" if is_plain(tensor.name, values) else \
            "F16" if outtype == "q8_0" and values.shape[-1] % 32 else TYPES[outtype]
        assert tensor.tensor_type.name == stored, (tensor.name, tensor.tensor_type)
        if stored == "F16":
            same = numpy.array_equal(numpy.asarray(tensor.data), values.astype(numpy.float16))
        else:
            same = numpy.asarray(tensor.data).tobytes() == \
                gguf.quants.quantize(values, tensor.tensor_type).tobytes()
        assert same, tensor.name


def test_refusals(program, model, folder):
    def refused(*arguments, code=2, name="there.gguf"):
        done = subprocess.run([program, "export", model.weights, folder / name, *arguments],
                              capture_output=True, text=True)
        assert done.returncode == code and not done.stdout, done
        return done.stderr

    (folder / "there.gguf").write_text("mine")
    assert "is there already" in refused()
    assert (folder / "there.gguf").read_text() == "mine"
    assert "--outtype" in refused("--outtype", "q4_0")
    assert "--outtype" in refused("--outtype", "f16", name="directory")
    assert "no directory" in refused(name="missing/x.gguf")
    export(program, model, folder / "there.gguf", "f16", "--overwrite")
    # A value that F16 can't represent.
    with torch.no_grad():
        next(iter(model.model.parameters()))[3, 1] = 1e30
    model.model.save_pretrained(model.weights)
    message = refused("--outtype", "f16", code=3, name="large.gguf")
    assert "finite" in message and "weight" in message, message
    assert not [*folder.glob("large*")]


class LlamaCpp:
    def __init__(self, path, vocab_only=False):
        import llama_cpp
        self.llama = llama_cpp.Llama(str(path), n_ctx=256, logits_all=True, verbose=False,
                                     type_k=0, type_v=0, vocab_only=vocab_only)

    def greedy(self, ids, count):
        result = list(ids)
        self.llama.reset()
        for token in self.llama.generate(ids, temp=0.0, repeat_penalty=1.0, reset=True):
            result.append(token)
            if len(result) == len(ids) + count:
                return result

    def loss(self, ids):
        self.llama.reset()
        self.llama.eval(ids[:-1])
        logits = torch.tensor(self.llama.scores[:len(ids) - 1]).double()
        return torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])).item()


def test_model_there(program, rng, model, outtype, path):
    export(program, model, path, outtype, "--overwrite")
    there = LlamaCpp(path)
    ids = [rng.randrange(model.config.vocab_size) for _ in range(256)]
    ratio = math.exp(there.loss(ids) - model.loss(ids))
    # Rounding may give a token another expert.
    routed = 3 if hasattr(model.config, "num_experts_per_tok") and outtype != "f32" else 1
    assert abs(ratio - 1) < routed * TOLERANCE[outtype], ratio
    if outtype != "f32":
        return
    with torch.no_grad():
        expected = model.model.generate(
            torch.tensor([ids[:20]]), attention_mask=torch.ones(1, 20), max_new_tokens=200,
            do_sample=False, eos_token_id=None, pad_token_id=0)
    own = there.greedy(ids[:20], 200)
    assert own == expected[0].tolist(), (own, expected[0].tolist())


def test_tokenizer_there(program, rng, folder, tokenizer, texts):
    folder.mkdir()
    model = Model(rng, folder, "llama", False, tokenizer, tokenizer.get_vocab_size() + 3,
                  num_hidden_layers=1, hidden_size=8)
    notes = export(program, model, folder / "x.gguf", "f16")
    # The model's config ends texts at token 0, whatever the tokenizer's own end token is.
    ends = [line for line in notes.splitlines() if "because of its name" in line]
    own_ends = {"</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>"}
    named = own_ends & {token for token, id in tokenizer.get_vocab().items() if id != 0}
    assert all(any(f'"{token}"' in line for line in ends) for token in named), (named, notes)
    notes = "".join(line for line in notes.splitlines(True) if line.rstrip("\n") not in ends)
    normal = tokenizer.normalizer if isinstance(tokenizer.normalizer, normalizers.NFC) else None
    assert ("normal form C" if normal else "") in notes and (normal or not notes), notes
    there = LlamaCpp(folder / "x.gguf", vocab_only=True).llama
    for text in texts:
        text = normal.normalize_str(text) if normal else text
        for specials in (False, True):
            expected = tokenizer.encode(text, add_special_tokens=specials).ids
            own = there.tokenize(text.encode(), add_bos=specials, special=True)
            assert own == expected, (text[:200], own[:50], expected[:50])


def test_bytes_there(program, folder):
    folder.mkdir()
    (folder / "x.txt").write_text("naïve text 日本\n" * 50)
    (folder / "c.json").write_text(json.dumps({
        "model": {"architecture": "llama", "num_layers": 2, "hidden_size": 32,
                  "num_attention_heads": 2, "ffn_hidden_size": 64},
        "batch": {"micro_batch_size": 4},
        "data": {"train": [{"path": "x.txt"}], "sequence_length": 64},
        "optimizer": {"params": {"lr": 0.01}},
        "training": {"train_iters": 30}, "checkpoint": {"save": "weights"},
        "logging": {"dir": "run"}}))
    for command in (["train", "c.json"], ["export", "run", "x.gguf"]):
        subprocess.run([program, *command], cwd=folder, check=True, capture_output=True)
    there = LlamaCpp(folder / "x.gguf")
    everything = bytes(range(256)) * 2 + "naïve 日本".encode()
    assert there.llama.tokenize(everything, add_bos=False) == list(everything)
    assert there.llama.detokenize(list(everything)) == everything
    ours = subprocess.run([program, "generate", "run", "--prompt", "na", "--tokens", "40",
                           "--temperature", "0", "--format", "json"], cwd=folder, check=True,
                          capture_output=True, text=True).stdout
    assert there.greedy(list(b"na"), 40) == json.loads(ours)["tokens"]
    made = there.llama.create_completion("na", max_tokens=40, temperature=0, repeat_penalty=1)
    assert json.loads(ours)["text"] == "na" + made["choices"][0]["text"]


def test_unknown_tokenizers(program, rng, folder, texts):
    """The program reports tokenizers that llama.cpp would treat differently."""
    folder.mkdir()
    for name, what in (("unigram", "Unigram"), ("word_piece", "WordPiece"),
                       ("metaspace", "bytes"), ("digits", "NFKC"), ("qwen2", "pre-tokenizer")):
        tokenizer = tokenizer_peer.tokenizers_by_name(texts)[name]()
        (folder / name).mkdir()
        model = Model(rng, folder / name, "gpt2", True, tokenizer)
        notes = export(program, model, folder / f"{name}.gguf", "f32")
        assert what in notes, (name, notes)
        fields = gguf.GGUFReader(folder / f"{name}.gguf").fields
        kind = fields["tokenizer.ggml.model"].contents()
        assert kind == "none", (name, kind)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--program", default=str(ROOT / "build/release/trident"))
    parser.add_argument("--llama-cpp", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # more of them would wait for each other while other tests run
    program = str(pathlib.Path(arguments.program).resolve())
    passed = failed = 0

    def check(name, test, *given):
        nonlocal passed, failed
        try:
            test(*given)
            passed += 1
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED {name} (--seed {arguments.seed}): {type(error).__name__}: {error}")

    rng = random.Random(arguments.seed)
    texts = [*tokenizer_peer.translations()][::7] + [*tokenizer_peer.code()][:20]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        biases = {"attention_bias": True, "mlp_bias": True}

        def scaled(kind, **numbers):
            return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, **numbers}}

        experts = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
        deepseek = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
                    "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "q_lora_rank": 40,
                    "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                    "v_head_dim": 24, "first_k_dense_replace": 1, "num_key_value_heads": 4,
                    "routed_scaling_factor": 1.5, "rms_norm_eps": 1e-6}
        for i, (architecture, tied, sizes) in enumerate((
                ("gpt2", True, {}), ("qwen2", False, scaled("linear", factor=3.0)),
                ("qwen3", False, {"head_dim": 24} | scaled(
                    "yarn", factor=4.0, original_max_position_embeddings=64)),
                ("mistral", True, {"sliding_window": None}),
                ("mixtral", True, {"num_local_experts": 4, "head_dim": 24}),
                ("qwen2_moe", False, experts | {"shared_expert_intermediate_size": 80}),
                ("qwen3_moe", True, experts | {"norm_topk_prob": True, "head_dim": 16}),
                ("olmoe", False, {"num_experts": 8, "num_experts_per_tok": 3,
                                  "num_key_value_heads": 4}),
                ("deepseek_v3", False, deepseek),
                ("deepseek_v3", True, deepseek | {"norm_topk_prob": False} | scaled(
                    "yarn", factor=4.0, original_max_position_embeddings=64, mscale=0.8,
                    mscale_all_dim=0.8)),
                ("deepseek_v3", False, deepseek | {"q_lora_rank": None, "num_hidden_layers": 26}),
                ("gpt_oss", False, {"num_local_experts": 5, "num_experts_per_tok": 2,
                                    "head_dim": 24, "sliding_window": 40}),
                ("llama", False, biases | scaled(
                    "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                    original_max_position_embeddings=64)),
                ("llama", True, {}))):
            model = Model(rng, folder / f"m{i}", architecture, tied, **sizes)
            for outtype in TYPES:
                check(f"{architecture} {outtype} file", test_file, program, model, outtype,
                      folder / f"m{i}-{outtype}.gguf")
            if arguments.llama_cpp:
                for outtype in TOLERANCE:
                    check(f"{architecture} {outtype} in llama.cpp", test_model_there, program, rng,
                          model, outtype, folder / f"m{i}-{outtype}.gguf")
        check("refusals", test_refusals, program, model, folder)
        check("tokenizers that llama.cpp hasn't", test_unknown_tokenizers, program, rng,
              folder / "unknown", texts)
        if arguments.llama_cpp:
            check("bytes in llama.cpp", test_bytes_there, program, folder / "bytes")
            compared = [*texts, tokenizer_peer.emoji(), *tokenizer_peer.awkward(),
                        *tokenizer_peer.random_texts(rng)]
            for name, make in {
                    "gpt2": gpt2,
                    "mistral": tokenizer_peer.mistral,
                    "small_mistral": lambda: tokenizer_peer.small_mistral(texts),
                    "llama3": lambda: plain_byte_level(texts, tokenizer_peer.LLAMA3, True),
                    "dbrx": lambda: plain_byte_level(texts, tokenizer_peer.LLAMA3, False),
                    "qwen2": lambda: plain_byte_level(texts, tokenizer_peer.QWEN2, False),
                    "smollm": lambda: smollm(texts)}.items():
                check(f"{name} tokenizer in llama.cpp", test_tokenizer_there, program, rng,
                      folder / name, make(), compared)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
