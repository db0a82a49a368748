// Llama's files, as transformers' LlamaForCausalLM and llama.cpp store them.
#include "models/llama_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/json.h"
#include "models/hugging_face_rope.h"
#include "settings/rope_types.h"

namespace trident {
namespace {

using Use = HuggingFaceUse;

constexpr HuggingFaceKey shared_llama_keys[] = {
    {"pad_token_id", Use::model},
    {"vocab_size", Use::model},
    {"hidden_size", Use::model},
    {"intermediate_size", Use::model},
    {"num_hidden_layers", Use::model},
    {"num_attention_heads", Use::model},
    {"num_key_value_heads", Use::model},
    {"head_dim", Use::model},
    {"hidden_act", Use::model},
    {"max_position_embeddings", Use::model},
    {"rms_norm_eps", Use::model},
    {"rope_theta", Use::model},
    {"rope_parameters", Use::model},
    {"rope_scaling", Use::model},
    {"attention_dropout", Use::training},
    {"original_max_position_embeddings", Use::model},  // of scaled positions
    {"partial_rotary_factor", Use::fixed, "[1, null]"},
};

// The other keys of transformers' LlamaConfig, 4.30 to 5.24.
constexpr HuggingFaceKey llama_keys[] = {
    // Computes products by parts and adds them up: the same numbers except for rounding.
    {"pretraining_tp", Use::training},
    {"attention_bias", Use::model},
    {"mlp_bias", Use::model},
};

constexpr std::string_view llama_classes[] = {"LlamaForCausalLM", "LlamaModel", "LLaMAForCausalLM"};

constexpr StoredTensor llama_tensor_rows[] = {
    {"embedding.weight", "model.embed_tokens.weight", "token_embd.weight"},
    {"layers.*.attention_norm.weight", "model.layers.*.input_layernorm.weight",
     "blk.*.attn_norm.weight"},
    {"layers.*.attention.qkv.weight", "model.layers.*.self_attn.q_proj.weight",
     "blk.*.attn_q.weight", StoredRows::queries},
    {"layers.*.attention.qkv.weight", "model.layers.*.self_attn.k_proj.weight",
     "blk.*.attn_k.weight", StoredRows::keys},
    {"layers.*.attention.qkv.weight", "model.layers.*.self_attn.v_proj.weight",
     "blk.*.attn_v.weight", StoredRows::values},
    {"layers.*.attention.qkv.bias", "model.layers.*.self_attn.q_proj.bias", "blk.*.attn_q.bias",
     StoredRows::queries},
    {"layers.*.attention.qkv.bias", "model.layers.*.self_attn.k_proj.bias", "blk.*.attn_k.bias",
     StoredRows::keys},
    {"layers.*.attention.qkv.bias", "model.layers.*.self_attn.v_proj.bias", "blk.*.attn_v.bias",
     StoredRows::values},
    {"layers.*.attention.q_norm.weight", "model.layers.*.self_attn.q_norm.weight",
     "blk.*.attn_q_norm.weight"},
    {"layers.*.attention.k_norm.weight", "model.layers.*.self_attn.k_norm.weight",
     "blk.*.attn_k_norm.weight"},
    {"layers.*.attention.output.weight", "model.layers.*.self_attn.o_proj.weight",
     "blk.*.attn_output.weight"},
    {"layers.*.attention.output.bias", "model.layers.*.self_attn.o_proj.bias",
     "blk.*.attn_output.bias"},
    {"layers.*.mlp_norm.weight", "model.layers.*.post_attention_layernorm.weight",
     "blk.*.ffn_norm.weight"},
    {"layers.*.mlp.up.weight", "model.layers.*.mlp.gate_proj.weight", "blk.*.ffn_gate.weight",
     StoredRows::gate},
    {"layers.*.mlp.up.weight", "model.layers.*.mlp.up_proj.weight", "blk.*.ffn_up.weight",
     StoredRows::up},
    {"layers.*.mlp.up.bias", "model.layers.*.mlp.gate_proj.bias", "blk.*.ffn_gate.bias",
     StoredRows::gate},
    {"layers.*.mlp.up.bias", "model.layers.*.mlp.up_proj.bias", "blk.*.ffn_up.bias",
     StoredRows::up},
    {"layers.*.mlp.down.weight", "model.layers.*.mlp.down_proj.weight", "blk.*.ffn_down.weight"},
    {"layers.*.mlp.down.bias", "model.layers.*.mlp.down_proj.bias", "blk.*.ffn_down.bias"},
    {"final_norm.weight", "model.norm.weight", "output_norm.weight"},
    {"output.weight", "lm_head.weight", "output.weight"},
};

// These buffers follow from the base of the rotary positions.
constexpr std::string_view llama_buffer_names[] = {"model.layers.*.self_attn.rotary_emb.inv_freq",
                                                   "model.rotary_emb.inv_freq"};

std::string llama_write_config(const ModelConfig& model, DType dtype) {
  nlohmann::ordered_json written = llama_config(model, dtype, "llama", "LlamaForCausalLM");
  written["attention_bias"] = model.attention_bias;
  written["mlp_bias"] = model.mlp_bias;
  return json_text(written, 2);
}

std::string llama_read_config(HuggingFaceConfig& hf) {
  nlohmann::json model = llama_model(hf, "llama");
  for (const char* key : {"attention_bias", "mlp_bias"}) model[key] = hf.flag_or(key, false);
  hf.finish();
  return json_text(model);
}

constexpr FamilyFormatTables llama_tables{.model_type = "llama",
                                          .classes = llama_classes,
                                          .keys = {llama_keys, shared_llama_keys},
                                          .tensors = llama_tensor_rows,
                                          .buffers = llama_buffer_names,
                                          .write_config = llama_write_config,
                                          .read_config = llama_read_config,
                                          .gguf_interleaves = true,
                                          .gguf_keys = llama_gguf_keys};

// rope_scaling, with the keys that its type reads.
nlohmann::ordered_json rope_scaling_of(const ModelConfig& model) {
  const RopeScalingConfig& scaling = model.rope_scaling;
  nlohmann::ordered_json all{
      {"factor", scaling.factor},
      {"original_max_position_embeddings", scaling.original_max_position_embeddings},
      {"low_freq_factor", scaling.low_freq_factor},
      {"high_freq_factor", scaling.high_freq_factor},
      {"beta_fast", scaling.beta_fast},
      {"beta_slow", scaling.beta_slow},
      {"truncate", scaling.truncate}};
  if (scaling.attention_factor > 0) all["attention_factor"] = scaling.attention_factor;
  if (scaling.mscale > 0) all["mscale"] = scaling.mscale;
  if (scaling.mscale_all_dim > 0) all["mscale_all_dim"] = scaling.mscale_all_dim;
  // transformers before 5 takes the quotient of the positions for yarn's factor where this key is
  // given; a missing one means the same now.
  if (scaling.rope_type == "yarn" &&
      scaling.original_max_position_embeddings == model.max_position_embeddings) {
    all.erase("original_max_position_embeddings");
  }
  nlohmann::ordered_json written{{"rope_type", scaling.rope_type}};
  const RopeType& type = *find_rope_type(scaling.rope_type);
  for (const auto& [key, value] : all.items()) {
    if (type.reads(key)) written[key] = value;
  }
  return written;
}

}  // namespace

std::span<const HuggingFaceKey> llama_shared_keys() {
  return shared_llama_keys;
}

std::span<const StoredTensor> llama_tensors() {
  return llama_tensor_rows;
}

std::span<const std::string_view> llama_buffers() {
  return llama_buffer_names;
}

nlohmann::ordered_json llama_config(const ModelConfig& m, DType dtype, std::string_view model_type,
                                    std::string_view model_class) {
  nlohmann::ordered_json written{{"architectures", {model_class}},
                                 {"model_type", model_type},
                                 {"hidden_act", "silu"},
                                 {"num_hidden_layers", m.num_layers},
                                 {"hidden_size", m.hidden_size},
                                 {"num_attention_heads", m.num_attention_heads},
                                 {"num_key_value_heads", m.num_query_groups},
                                 {"head_dim", m.head_dim},
                                 {"intermediate_size", m.ffn_hidden_size},
                                 {"max_position_embeddings", m.max_position_embeddings},
                                 {"vocab_size", m.vocab_size},
                                 {"rms_norm_eps", m.norm_epsilon},
                                 {"rope_theta", m.rotary_base},
                                 {"initializer_range", m.init_method_std},
                                 {"attention_dropout", m.attention_dropout},
                                 {"tie_word_embeddings", m.tie_word_embeddings},
                                 {"bos_token_id", nullptr},
                                 {"eos_token_id", nullptr},
                                 {"torch_dtype", torch_name_of(dtype)}};
  if (m.pad_token_id) written["pad_token_id"] = *m.pad_token_id;
  if (m.rope_scaling.rope_type != "default") written["rope_scaling"] = rope_scaling_of(m);
  return written;
}

nlohmann::json llama_model(HuggingFaceConfig& hf, std::string_view architecture,
                           const LlamaDefaults& defaults) {
  const std::int64_t heads = hf.size("num_attention_heads"), hidden = hf.size("hidden_size");
  const std::int64_t positions = hf.size("max_position_embeddings");
  const bool usual = defaults.groups == 0 || !hf.is_missing("num_key_value_heads");
  const std::int64_t vocabulary = hf.size("vocab_size");
  nlohmann::json model{
      {"architecture", architecture},
      {"num_layers", hf.size("num_hidden_layers")},
      {"hidden_size", hidden},
      {"num_attention_heads", heads},
      {"num_query_groups", hf.size_or("num_key_value_heads", usual ? heads : defaults.groups)},
      {"head_dim", hf.size_or("head_dim", std::max<std::int64_t>(1, hidden / heads))},
      {"ffn_hidden_size", hf.size("intermediate_size")},
      {"max_position_embeddings", positions},
      {"vocab_size", vocabulary},
      {"norm_epsilon", hf.number_or("rms_norm_eps", defaults.norm_epsilon)},
      {"tie_word_embeddings", hf.flag_or("tie_word_embeddings", false)}};
  if (const auto padding = hf.token_below("pad_token_id", vocabulary)) {
    model["pad_token_id"] = *padding;
  }
  model.update(rotary_positions(hf, positions, defaults.rotary_base));
  model["sliding_window"] = nullptr;
  model["window_layers"] = nullptr;
  hf.require_word("hidden_act", {"silu", "swish"});
  return model;
}

void llama_gguf_keys(const ModelConfig& m, GgufForm& form) {
  form.sizes = {{"context_length", m.max_position_embeddings},
                {"embedding_length", m.hidden_size},
                {"block_count", m.num_layers},
                {"feed_forward_length", m.ffn_hidden_size},
                {"attention.head_count", m.num_attention_heads},
                {"attention.head_count_kv", m.num_query_groups},
                {"rope.dimension_count", m.head_dim}};
  form.numbers = {{"attention.layer_norm_rms_epsilon", m.norm_epsilon},
                  {"rope.freq_base", m.rotary_base}};
  if (m.head_dim * m.num_attention_heads != m.hidden_size) {
    form.sizes.emplace_back("attention.key_length", m.head_dim);
    form.sizes.emplace_back("attention.value_length", m.head_dim);
  }
  const RopeScalingConfig& scaling = m.rope_scaling;
  const RotaryFrequencies frequencies = rotary_frequencies(m);
  if (scaling.rope_type == "llama3") {
    if (form.architecture != "llama") {
      throw RequestError(
          fmt::format("llama.cpp has no rope_type \"llama3\" for {}, as this model "
                      "has",
                      form.architecture));
    }
    // llama.cpp divides each pair's frequency by a factor of this tensor.
    form.rope_factors = frequency_divisors(frequencies, m.head_dim);
  } else if (scaling.rope_type == "linear" || scaling.rope_type == "yarn") {
    form.words.emplace_back("rope.scaling.type", scaling.rope_type);
    form.numbers.emplace_back("rope.scaling.factor", scaling.factor);
  } else if (scaling.rope_type != "default") {
    throw RequestError(fmt::format("llama.cpp has no rope_type \"{}\"", scaling.rope_type));
  }
  if (scaling.rope_type == "yarn") {
    form.sizes.emplace_back("rope.scaling.original_context_length",
                            scaling.original_max_position_embeddings);
    // llama.cpp multiplies sines and cosines by 0.1 ln factor + 1, and by this.
    const double usual = 0.1 * std::log(scaling.factor) + 1;
    form.numbers.emplace_back("rope.scaling.attn_factor", frequencies.amplitude / usual);
    if (!scaling.truncate || scaling.beta_fast != 32 || scaling.beta_slow != 1) {
      throw RequestError(
          "llama.cpp has yarn with beta_fast 32, beta_slow 1 and truncate true only; this model's "
          "rope_scaling has others");
    }
  }
  if (m.sliding_window && *m.sliding_window < m.max_position_embeddings) {
    throw RequestError(fmt::format(
        "llama.cpp has no sliding window for {}, but this model has one of {} positions",
        m.architecture, *m.sliding_window));
  }
}

const FamilyFormatTables& llama_formats() {
  return llama_tables;
}

}  // namespace trident
