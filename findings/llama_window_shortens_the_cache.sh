#!/usr/bin/env bash
# A Llama whose config.json has "sliding_window": its logits don't know it, its cache of keys does.
#
# transformers 5.24.0, torch 2.15.0 (CPU), 2026-11-28. LlamaConfig has no field sliding_window, and
# LlamaModel always attends to every earlier token: logits of a whole sequence are the same bits with
# and without the key. But the key stays on the config object, and DynamicCache takes its layers from
# any config that has it (cache_utils.py, get_layer_types_and_kwargs): a sliding layer, which forgets
# all but the last window - 1 tokens. From then on generate() with its default cache attends to fewer
# tokens than without one, without an error or a warning. attention_chunk_size does the same.
# Whoever adds the key to a folder of Llama, or renames model_type from mistral to llama, gets scores
# from one model and text from another.
#
# Seen:
#   None: DynamicLayer, logits equal, a cached step differs by 2.38e-06, tokens equal
#   sliding_window: DynamicSlidingWindowLayer, logits equal, a cached step differs by 6.06, tokens differ
#   attention_chunk_size: DynamicSlidingWindowLayer, logits equal, a cached step differs by 6.06, tokens differ
# This script fails where that changes. It downloads some GB into a temporary folder.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
  torch==2.15.0 transformers==5.24.0 numpy==2.4.6
export HF_HUB_OFFLINE=1 HF_HOME=$folder
complain() { cat "$folder/warnings" >&2; exit 1; }
"$folder/venv/bin/python" - "$folder/model" 2>"$folder/warnings" <<'PYTHON' || complain
import json, pathlib, sys
import torch, transformers

print("transformers", transformers.__version__, "torch", torch.__version__)
transformers.utils.logging.disable_progress_bar()
torch.manual_seed(0)
folder = pathlib.Path(sys.argv[1])
plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=128, initializer_range=0.5, eos_token_id=None)).eval()
plain.save_pretrained(folder)
written = json.loads((folder / "config.json").read_text())
prompt, after = torch.randint(0, 64, (1, 20)), torch.tensor([[5]])


def tokens(model, cache):
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20,
                         do_sample=False, use_cache=cache, pad_token_id=0)
    return out[0, prompt.shape[1]:].tolist()


for key in (None, "sliding_window", "attention_chunk_size"):
    (folder / "config.json").write_text(json.dumps(written | ({key: 8} if key else {})))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    assert not key or not hasattr(transformers.LlamaConfig(), key)
    with torch.no_grad():
        assert torch.equal(model(prompt).logits, plain(prompt).logits)
        cache = model(prompt).past_key_values
        step = model(after, past_key_values=cache).logits[0, -1]
        whole = model(torch.cat([prompt, after], 1), use_cache=False).logits[0, -1]
        apart = (step - whole).abs().max().item()
        cached, uncached = tokens(model, True), tokens(model, False)
    assert uncached == tokens(plain, False)
    name = type(cache.layers[0]).__name__
    print(f"{key}: {name}, logits equal, a cached step differs by {apart:.3g}, "
          f"tokens {'equal' if cached == uncached else 'differ'}")
    if key:
        assert name == "DynamicSlidingWindowLayer" and apart > 1 and cached != uncached
    else:
        assert name == "DynamicLayer" and apart < 1e-3 and cached == uncached
PYTHON
if grep -qiE "window|chunk" "$folder/warnings"; then complain; fi
echo "as stated"
