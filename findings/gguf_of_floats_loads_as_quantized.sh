#!/usr/bin/env bash
# A GGUF file of plain fp32 tensors loads as a "quantized" model that can't be saved or trained.
#
# transformers 5.24.0, gguf 0.19.0, torch 2.15.0 (CPU), 2026-11-29. from_pretrained(gguf_file=...) of a
# Llama goes through the older loader, which unpacks every tensor: ordinary nn.Linear modules with
# fp32 parameters, which take gradients. The model is marked as quantized all the same (is_quantized,
# config.quantization_config). So save_pretrained() and half() raise, and Trainer refuses "purely
# quantized models", for F32 files as for Q8_0. A warning in bfloat16 says that the weights stay
# quantized. quantization_config=GgufConfig(dequantize=True) gives the same weights, bitwise, in the
# same number of bytes, without the mark, and all four work. Recipes that turn a GGUF file into a
# Hugging Face folder by from_pretrained and save_pretrained need it now.
#
# Seen (for F32 and Q8_0 alike):
#   default: quantized True, 328960 bytes, Linear of torch.float32; save refused, half refused, Trainer refused
#   dequantize: quantized False, 328960 bytes, Linear of torch.float32; save done, half done, Trainer done
#   the weights of both are bitwise identical: True
# This script fails where that changes. It downloads some GB into a temporary folder.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
  torch==2.15.0 transformers==5.24.0 gguf==0.19.0 accelerate==1.15.0 numpy==2.4.6
export HF_HUB_OFFLINE=1 HF_HOME=$folder
complain() { cat "$folder/warnings" >&2; exit 1; }
"$folder/venv/bin/python" - "$folder" 2>"$folder/warnings" <<'PYTHON' || complain
import pathlib, sys
import gguf, numpy, torch, transformers

print("transformers", transformers.__version__, "torch", torch.__version__)
torch.manual_seed(0)
folder = pathlib.Path(sys.argv[1])
source = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128))
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}


def write(name, kind):
    out = gguf.GGUFWriter(str(folder / name), "llama")
    out.add_context_length(128), out.add_embedding_length(64), out.add_block_count(2)
    out.add_feed_forward_length(128), out.add_head_count(4), out.add_head_count_kv(2)
    out.add_layer_norm_rms_eps(1e-6), out.add_rope_freq_base(10000.0), out.add_rope_dimension_count(16)
    out.add_vocab_size(64), out.add_tokenizer_model("gpt2"), out.add_token_merges([])
    out.add_token_list([f"t{i}" for i in range(64)]), out.add_token_types([1] * 64)
    for key, value in source.state_dict().items():
        parts = key.removesuffix(".weight").split(".")
        own = NAMES.get(".".join(parts)) or f"blk.{parts[2]}.{NAMES['.'.join(parts[3:])]}"
        array = numpy.ascontiguousarray(value.numpy())
        if kind and array.ndim == 2:
            out.add_tensor(own + ".weight", gguf.quants.quantize(array, kind), raw_dtype=kind)
        else:
            out.add_tensor(own + ".weight", array)
    out.write_header_to_file(), out.write_kv_data_to_file(), out.write_tensors_to_file(), out.close()


def refused(call):
    try:
        call()
    except ValueError:
        return "refused"
    return "done"


def look(name, **more):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, **more)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    layer = model.model.layers[0].self_attn.q_proj
    ids = torch.arange(8)[None]
    model(ids, labels=ids).loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    arguments = transformers.TrainingArguments(str(folder / "t"), report_to=[], use_cpu=True, max_steps=1)
    trainer = refused(lambda: transformers.Trainer(model, arguments, train_dataset=[{"input_ids": [1]}]))
    save = refused(lambda: model.save_pretrained(folder / "saved"))
    half = refused(model.half)
    print(f"{name} {'dequantize' if more else 'default'}: quantized {getattr(model, 'is_quantized', False)}, "
          f"{size} bytes, {type(layer).__name__} of {layer.weight.dtype if half == 'refused' else torch.float32}; "
          f"save {save}, half {half}, Trainer {trainer}")
    return weights, (getattr(model, "is_quantized", False), size, save, half, trainer)


for name, kind in (("f32.gguf", None), ("q8_0.gguf", gguf.GGMLQuantizationType.Q8_0)):
    write(name, kind)
    marked, first = look(name)
    plain, second = look(name, quantization_config=transformers.GgufConfig(dequantize=True))
    same = marked.keys() == plain.keys() and all(torch.equal(marked[k], plain[k]) for k in marked)
    print("the weights of both are bitwise identical:", same)
    assert same and first == (True, 328960, *["refused"] * 3) and second == (False, 328960, *["done"] * 3)
PYTHON
