#!/usr/bin/env bash
# A Mistral whose config.json has "layer_types": which model it is depends on the class that loads it.
#
# transformers 5.24.0, torch 2.15.0 (CPU), 2026-11-30. MistralConfig has no field layer_types, and
# MistralForCausalLM has the window in all layers whatever that key says (a warning names other
# classes). But AutoConfig, AutoModel and pipelines look for the key itself (configuration_auto.py):
# a folder of model_type "mistral" that has it, null included, is loaded as a Ministral. That class
# obeys the list, so with full attention in it the two classes compute different logits from the
# same files; and a folder saved from the one that AutoModel loaded says model_type "ministral", which
# versions before that class cannot read. Qwen's folders write this key always, and a converter that
# writes all keys of a table writes null.
#
# Seen, for 20 tokens and a window of 4:
#   no layer_types: MistralForCausalLM, saved again as mistral, the classes' logits are equal
#   null: MinistralForCausalLM, saved again as ministral, the classes' logits are equal
#   full_attention: MinistralForCausalLM, saved again as ministral, the classes' logits differ
# This script fails where that changes. It downloads some GB into a temporary folder.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
  torch==2.15.0 transformers==5.24.0 numpy==2.4.6
export HF_HUB_OFFLINE=1 HF_HOME=$folder
complain() { cat "$folder/warnings" >&2; exit 1; }
"$folder/venv/bin/python" - "$folder" 2>"$folder/warnings" <<'PYTHON' || complain
import json, pathlib, sys
import torch, transformers

print("transformers", transformers.__version__, "torch", torch.__version__)
transformers.utils.logging.disable_progress_bar()
torch.manual_seed(0)
folder = pathlib.Path(sys.argv[1]) / "model"
transformers.MistralForCausalLM(transformers.MistralConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128, sliding_window=4,
    initializer_range=0.5)).save_pretrained(folder)
written = json.loads((folder / "config.json").read_text())
assert written["model_type"] == "mistral" and "layer_types" not in written
tokens = torch.randint(0, 64, (1, 20))
wanted = {"no layer_types": ("MistralForCausalLM", "mistral", True),
          "null": ("MinistralForCausalLM", "ministral", True),
          "full_attention": ("MinistralForCausalLM", "ministral", False)}
for name, more in {"no layer_types": {}, "null": {"layer_types": None},
                   "full_attention": {"layer_types": ["full_attention"] * 2}}.items():
    (folder / "config.json").write_text(json.dumps(written | more))
    chosen = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    named = transformers.MistralForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        same = torch.allclose(chosen(tokens).logits, named(tokens).logits, atol=1e-4)
    again = folder.with_name("again")
    chosen.save_pretrained(again)
    kind = json.loads((again / "config.json").read_text())["model_type"]
    print(f"{name}: {type(chosen).__name__}, saved again as {kind}, the classes' logits "
          f"{'are equal' if same else 'differ'}")
    assert (type(chosen).__name__, kind, same) == wanted[name]
PYTHON
echo "as stated"
