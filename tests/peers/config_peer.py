#!/usr/bin/env python3
"""Compares the program's reading of a config.json with transformers' classes.

    python tests/peers/config_peer.py [--seed N] [--program build/release/trident]

For a small model of each family: every key of the class is known here. Keys that it doesn't know, drawn
ones and those of published folders, change no logit there; the program names them and keeps them in
the saved folder. rope_theta, rope_parameters and rope_scaling in any combination give the base and
the scaling of transformers, or are refused; so do the keys of windows with the layers that have one.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import random
import shutil
import string
import subprocess
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import safetensors.torch
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PUBLISHED = {"_model_name_or_path": "x", "unk_token_id": 0, "is_llama_config": True,
             "rope_interleaved": True, "transformers.js_config": {"dtype": "q4"},
             "unsloth_version": "2025.1", "torchscript": False, "tie_encoder_decoder": True,
             "pruned_heads": {"0": [1]}, "use_sliding_window": True,
             "cross_attention_hidden_size": 8, "logit_scale": 3, "n_heads": 9}
EXPERTS = {"mixtral": {"num_local_experts": 4},
           "qwen2_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
                         "shared_expert_intermediate_size": 20},
           "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12},
           "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
           "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8},
           "deepseek_v3": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
                           "topk_group": 1, "moe_intermediate_size": 12, "q_lora_rank": 6,
                           "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 8,
                           "v_head_dim": 4, "first_k_dense_replace": 1}}
ONE_WINDOW = ("mistral", "mixtral", "qwen3_moe")  # of all layers or of none


def small(kind):
    if kind != "gpt2":
        return {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
                "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config,
                "mixtral": transformers.MixtralConfig, "qwen2_moe": transformers.Qwen2MoeConfig,
                "qwen3_moe": transformers.Qwen3MoeConfig,
                "olmoe": transformers.OlmoeConfig,
                "gpt_oss": transformers.GptOssConfig,
                "deepseek_v3": transformers.DeepseekV3Config}[kind](
            **EXPERTS.get(kind, {}), vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4 if kind == "deepseek_v3" else 2,
            max_position_embeddings=16)
    return transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=4,
                                   bos_token_id=1, eos_token_id=1)


class Case:
    def __init__(self, program, kind, folder, rng):
        self.program, self.folder, self.rng = program, folder / kind, rng
        self.kind, self.config = kind, small(kind)
        torch.manual_seed(rng.randrange(2**31))
        transformers.AutoModelForCausalLM.from_config(self.config).save_pretrained(self.folder)
        self.written = json.loads((self.folder / "config.json").read_text())

    def imported(self, keys):
        """The saved folder's config.json and the program's output; None if it is refused."""
        (self.folder / "config.json").write_text(json.dumps(keys))
        out = self.folder.parent / "out"
        shutil.rmtree(out, ignore_errors=True)
        done = subprocess.run([self.program, "import", self.folder, out], capture_output=True,
                              text=True)
        assert done.returncode in (0, 2), done.stderr
        if done.returncode:
            return None, done.stderr
        return json.loads((out / "config.json").read_text()), done.stderr

    def logits(self, folder):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        with torch.no_grad():
            return model.eval()(torch.arange(12)[None]).logits

    def check_known(self):
        written = type(self.config).attribute_map  # fields that have another name in the dictionary
        fields = [written.get(f.name, f.name) for f in dataclasses.fields(type(self.config))]
        for key, value in {**self.config.to_dict(), "num_labels": 2}.items():
            saved, said = self.imported({**self.written, key: value})
            assert saved is not None and "doesn't know" not in said, (key, value, said)
        assert set(fields) <= set(self.config.to_dict()), "a field that isn't in the dictionary"

    def check_unknown(self):
        names = {"".join(self.rng.choices(string.ascii_lowercase + "_", k=9)): [1, {"a": None}]
                 for _ in range(3)}
        published = {key: value for key, value in PUBLISHED.items() if key not in self.written}
        usual = self.logits(self.folder)
        saved, said = self.imported({**self.written, **published, **names})
        assert saved is not None, said
        assert "doesn't know" in said and "_model_name_or_path" in said, said
        for key, value in {**published, **names}.items():
            assert saved[key] == value, key
        assert torch.equal(usual, self.logits(self.folder)), "transformers computes something else"
        assert torch.equal(usual, self.logits(self.folder.parent / "out"))

    def check_rope(self):
        inner = [None, {}, {"rope_type": "default"}, {"rope_type": "default", "rope_theta": 5e5},
                 {"type": "linear", "factor": 1.0, "rope_theta": 2e4},
                 {"rope_type": "linear", "factor": 3},
                 {"rope_type": "yarn", "factor": 2.0, "mscale": 0.5},
                 {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 4},
                 {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8,
                  "attention_factor": 1.5, "beta_fast": None, "truncate": False},
                 {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1,
                  "high_freq_factor": 4.0}]
        taken = 0
        scaled = {"linear": 0, "yarn": 0, "llama3": 0}
        for theta, parameters, scaling in itertools.product([None, 1e4, 5e5], inner, inner):
            keys = {k: v for k, v in self.written.items() if not k.startswith("rope")}
            for key, value in (("rope_theta", theta), ("rope_parameters", parameters),
                               ("rope_scaling", scaling)):
                if value is not None or self.rng.random() < 0.3:
                    keys[key] = value
            if keys.get("rope_theta", 0) is None:
                del keys["rope_theta"]
            if self.rng.random() < 0.2:
                keys["original_max_position_embeddings"] = 12
            if self.rng.random() < 0.5:  # of 250 combinations
                continue
            saved, said = self.imported(keys)
            theirs = type(self.config).from_dict(json.loads(json.dumps(keys)))
            if saved is not None:
                taken += 1
                assert saved["rope_theta"] == theirs.rope_parameters["rope_theta"], (keys, saved)
                ours = type(self.config).from_dict(json.loads(json.dumps(saved)))
                for of_config in (ours, theirs):
                    of_config.head_dim = 8  # the scalings differ little in heads of 4
                kind = theirs.rope_parameters["rope_type"]
                if kind != "default":
                    scaled[kind] += 1
                    compute = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind]
                    (mine, factor), (want, wanted) = (compute(c, "cpu") for c in (ours, theirs))
                    torch.testing.assert_close(mine, want, rtol=1e-6, atol=0)
                    assert abs(factor - wanted) < 1e-6, (keys, saved)
        assert taken > 20 and min(scaled.values()) > 0, (taken, scaled)

    def check_windows(self):
        layer_types = [None, ["full_attention"] * 2, ["sliding_attention", "full_attention"]]
        if self.kind in ONE_WINDOW:
            del layer_types[1:]  # mistral: AutoConfig takes a folder with this key for another family
        taken = 0
        for used, window, first, types in itertools.product(
                [None, False, True], [None, 3], [None, 0, 1, 2], layer_types):
            keys = {k: v for k, v in self.written.items() if k not in (
                "use_sliding_window", "sliding_window", "max_window_layers", "layer_types")}
            given = {"use_sliding_window": used, "max_window_layers": first, "layer_types": types}
            keys |= {key: value for key, value in given.items() if value is not None}
            if window is not None or self.rng.random() < 0.5:
                keys["sliding_window"] = window
            saved, said = self.imported(keys)
            try:
                theirs = type(self.config).from_dict(json.loads(json.dumps(keys)))
                torch.manual_seed(3)
                transformers.AutoModelForCausalLM.from_config(theirs)(torch.arange(6)[None])
            except Exception:  # a window is asked for where none is set
                assert saved is None, (keys, saved)
                continue
            assert saved is not None, (keys, said)
            taken += 1
            ours = type(self.config).from_dict(json.loads(json.dumps(saved)))

            def windows(config):
                if self.kind in ONE_WINDOW:
                    return config.sliding_window
                return [config.sliding_window if t == "sliding_attention" else None
                        for t in config.layer_types]
            assert windows(ours) == windows(theirs), (keys, saved, windows(theirs))
        assert taken > 10, taken

    def check_experts(self):
        """Compares the layers with experts, their number, and the defaults of missing keys."""
        keys = {k: v for k, v in self.written.items()
                if k not in ("rope_parameters", "rms_norm_eps", "num_key_value_heads")}
        theirs = type(self.config).from_dict(json.loads(json.dumps(keys)))
        saved, said = self.imported(keys | {"num_key_value_heads": 2})
        assert saved["rope_theta"] == theirs.rope_parameters["rope_theta"], (saved, said)
        assert saved["rms_norm_eps"] == theirs.rms_norm_eps, saved
        for step, dense, missing in itertools.product(
                [None, 1, 2, 3], [None, [], [0], [1]],
                [None, "num_experts_per_tok", "norm_topk_prob"]):
            if self.rng.random() < 0.6:  # of 48 combinations
                continue
            keys = {k: v for k, v in self.written.items()
                    if k not in ("decoder_sparse_step", "mlp_only_layers", missing)}
            given = {"decoder_sparse_step": step, "mlp_only_layers": dense}
            if self.kind not in ("mixtral", "olmoe"):
                keys |= {key: value for key, value in given.items() if value is not None}
            saved, said = self.imported(keys)
            theirs = type(self.config).from_dict(json.loads(json.dumps(keys)))
            with torch.device("meta"):
                names = transformers.AutoModelForCausalLM.from_config(theirs).state_dict()
            layers = [i for i in range(2) if f"model.layers.{i}.mlp.gate.weight" in names]
            same = layers == ([0, 1] if self.kind in ("mixtral", "olmoe") else self.layers)
            if saved is None:  # the folder's tensors are of other layers, or fewer experts are taken
                assert not same or theirs.num_experts_per_tok > 4, (keys, said)
                continue
            assert same, (keys, layers)
            ours = type(self.config).from_dict(json.loads(json.dumps(saved)))
            for key in ("num_experts_per_tok", "norm_topk_prob", "router_aux_loss_coef"):
                assert getattr(ours, key, None) == getattr(theirs, key, None), (key, keys)

    layers = [0, 1]  # of the folder's experts

    def check_latent(self):
        """Compares the defaults of DeepSeek-V3 for missing keys and null."""
        names = ["q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                 "n_group", "topk_group", "num_experts_per_tok", "norm_topk_prob",
                 "routed_scaling_factor", "first_k_dense_replace", "n_shared_experts",
                 "moe_intermediate_size", "n_routed_experts", "rms_norm_eps", "num_key_value_heads",
                 "attention_bias", "rope_parameters", "rope_interleave"]
        folder = {name: list(tensor.shape) for name, tensor in self.state().items()}
        taken = 0
        for name, value in itertools.product(names, ["missing", None, 1]):
            keys = {k: v for k, v in self.written.items() if k != name}
            if value != "missing":  # the class takes no whole number for a fraction; the program does
                keys[name] = 0.5 if value and name in ("routed_scaling_factor",
                                                       "rms_norm_eps") else value
            try:
                theirs = type(self.config).from_dict(json.loads(json.dumps(keys)))
                with torch.device("meta"):
                    model = transformers.AutoModelForCausalLM.from_config(theirs)
                shapes = {n: list(t.shape) for n, t in self.parted(model.state_dict()).items()}
            except Exception:
                shapes = None
            saved, said = self.imported(keys)
            if saved is None:
                continue
            taken += 1
            assert shapes == folder, (name, value, said)
            ours = type(self.config).from_dict(json.loads(json.dumps(saved)))
            for key in names:
                mine, want = getattr(ours, key), getattr(theirs, key)
                if key == "rope_parameters":
                    mine, want = mine["rope_theta"], want["rope_theta"]
                if key == "norm_topk_prob":  # null counts as false
                    mine, want = bool(mine), bool(want)
                assert mine == want, (name, value, key, mine, want)
        assert taken > 15, taken

    def check_gpt_oss(self):
        """Compares the defaults of gpt-oss for missing keys and null. Its rotary positions are scaled by default."""
        names = ["head_dim", "num_key_value_heads", "sliding_window", "layer_types",
                 "rope_parameters", "num_experts_per_tok", "rms_norm_eps", "num_local_experts",
                 "swiglu_limit", "swiglu_alpha", "attention_bias", "router_aux_loss_coef",
                 "intermediate_size", "tie_word_embeddings", "rope_scaling",
                 "original_max_position_embeddings"]
        folder = {name: list(tensor.shape) for name, tensor in self.state().items()}
        values = ["missing", None, 1, 8, 1.5, True, {}, ["full_attention"] * 2,
                  ["full_attention", "sliding_attention"],
                  {"rope_type": "default", "rope_theta": 3e4}, {"rope_type": "linear", "factor": 2.0}]
        taken, wrong = [], []
        for name, value in itertools.product(names, values):
            if type(value) is int and name in ("rms_norm_eps", "router_aux_loss_coef"):
                continue  # the class takes no whole number for a fraction; the program does
            keys = {k: v for k, v in self.written.items() if k != name}
            if name in ("rope_scaling", "original_max_position_embeddings"):
                del keys["rope_parameters"]
            if value != "missing":
                keys[name] = value
            try:
                theirs = type(self.config).from_dict(json.loads(json.dumps(keys)))
                with torch.device("meta"):
                    model = transformers.AutoModelForCausalLM.from_config(theirs)
                shapes = {n: list(t.shape) for n, t in model.state_dict().items()}
            except Exception:
                shapes = None
            saved, said = self.imported(keys)
            if saved is None:
                continue
            taken.append(name)
            if shapes != folder:
                wrong.append((name, value))
                continue
            ours = type(self.config).from_dict(json.loads(json.dumps(saved)))
            for key in names:
                if key in ("rope_scaling", "original_max_position_embeddings"):
                    continue  # rope_parameters has both
                mine, want = getattr(ours, key), getattr(theirs, key)
                if key == "rope_parameters":
                    mine, want = self.frequencies(ours), self.frequencies(theirs)
                elif key == "sliding_window" and "sliding_attention" not in theirs.layer_types:
                    continue
                if mine != want:
                    wrong.append((name, value, key, mine, want))
        assert not wrong, wrong
        assert set(names) - set(taken) <= {"head_dim", "num_key_value_heads", "num_local_experts",
                                           "intermediate_size"}, taken

    @staticmethod
    def frequencies(config):
        rope = config.rope_parameters
        if rope["rope_type"] == "default":
            return rope["rope_theta"]
        compute = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[rope["rope_type"]]
        frequencies, factor = compute(config, "cpu")
        return [round(x, 7) for x in frequencies.tolist()], round(factor, 6)

    @staticmethod
    def parted(state):
        """The names of files, where each expert has tensors of its own."""
        names = {}
        for name, tensor in state.items():
            head, _, tail = name.partition(".mlp.experts.")
            if tail == "gate_up_proj":
                half = tensor.shape[1] // 2
                for i in range(len(tensor)):
                    names[f"{head}.mlp.experts.{i}.gate_proj.weight"] = tensor[i][:half]
                    names[f"{head}.mlp.experts.{i}.up_proj.weight"] = tensor[i][half:]
            elif tail == "down_proj":
                for i in range(len(tensor)):
                    names[f"{head}.mlp.experts.{i}.down_proj.weight"] = tensor[i]
            else:
                names[name] = tensor
        return names

    def state(self):
        return safetensors.torch.load_file(self.folder / "model.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/trident")
    families = ["llama", "mistral", "qwen2", "qwen3", *EXPERTS, "gpt2"]
    parser.add_argument("--families", nargs="+", default=families, choices=families)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # more of them would wait for each other while other tests run
    print(f"config peer: seed {arguments.seed}")
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as temporary:
        for kind in arguments.families:
            case = Case(arguments.program.resolve(), kind, pathlib.Path(temporary),
                        random.Random(f"{arguments.seed} {kind}"))
            case.check_known()
            case.check_unknown()
            if kind != "gpt2" and kind not in EXPERTS:  # they read it as mistral and qwen do
                case.check_rope()
            if kind not in ("gpt2", "llama", "olmoe", "deepseek_v3", "gpt_oss"):
                case.check_windows()
            if kind == "deepseek_v3":
                case.check_latent()
            elif kind == "gpt_oss":
                case.check_gpt_oss()
            elif kind in EXPERTS:
                case.check_experts()
    print("config peer: known and unknown keys, rotary positions and windows as transformers has them")


if __name__ == "__main__":
    main()
