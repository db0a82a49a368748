#!/usr/bin/env python3
"""Compares the program's reading of a config.json with transformers' classes.

    python tests/peers/config_peer.py [--seed N] [--program build/release/trident]

For a small Llama, Qwen2 and GPT-2: every key of the class is known here. Keys that it doesn't know, drawn
ones and those of published folders, change no logit there; the program names them and keeps them in
the saved folder. rope_theta, rope_parameters and rope_scaling in any combination give the base of
transformers, or are refused.
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

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PUBLISHED = {"_model_name_or_path": "x", "unk_token_id": 0, "is_llama_config": True,
             "rope_interleaved": True, "transformers.js_config": {"dtype": "q4"},
             "unsloth_version": "2025.1", "torchscript": False, "tie_encoder_decoder": True,
             "pruned_heads": {"0": [1]}, "use_sliding_window": True,
             "cross_attention_hidden_size": 8, "logit_scale": 3, "n_heads": 9}


def small(kind):
    if kind != "gpt2":
        return (transformers.LlamaConfig if kind == "llama" else transformers.Qwen2Config)(
            vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16)
    return transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=4,
                                   bos_token_id=1, eos_token_id=1)


class Case:
    def __init__(self, program, kind, folder, rng):
        self.program, self.folder, self.rng = program, folder / kind, rng
        self.config = small(kind)
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
        fields = [f.name for f in dataclasses.fields(type(self.config))]
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
                 {"type": "linear", "factor": 1.0, "rope_theta": 2e4}]
        taken = 0
        for theta, parameters, scaling in itertools.product([None, 1e4, 5e5], inner, inner):
            keys = {k: v for k, v in self.written.items() if not k.startswith("rope")}
            for key, value in (("rope_theta", theta), ("rope_parameters", parameters),
                               ("rope_scaling", scaling)):
                if value is not None or self.rng.random() < 0.3:
                    keys[key] = value
            if keys.get("rope_theta", 0) is None:
                del keys["rope_theta"]
            saved, said = self.imported(keys)
            theirs = type(self.config).from_dict(json.loads(json.dumps(keys)))
            if saved is not None:
                taken += 1
                assert saved["rope_theta"] == theirs.rope_parameters["rope_theta"], (keys, saved)
        assert taken > 20, taken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/trident")
    arguments = parser.parse_args()
    print(f"config peer: seed {arguments.seed}")
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as temporary:
        for kind in ("llama", "qwen2", "gpt2"):
            case = Case(arguments.program.resolve(), kind, pathlib.Path(temporary),
                        random.Random(f"{arguments.seed} {kind}"))
            case.check_known()
            case.check_unknown()
            if kind != "gpt2":
                case.check_rope()
    print("config peer: known, unknown and rotary keys as transformers has them")


if __name__ == "__main__":
    main()
