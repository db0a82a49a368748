// Llama (Touvron 2023): RoPE, RMSNorm, SwiGLU, grouped queries (Ainslie 2023), no biases.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/json.h"
#include "models/architecture.h"
#include "models/hugging_face_config.h"
#include "models/layer_name.h"

namespace trident {
namespace {

using Use = HuggingFaceUse;

// Those of transformers' LlamaConfig, 4.30 to 5.24.
constexpr HuggingFaceKey llama_keys[] = {
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
    // Products by parts, added up: the same numbers but for rounding.
    {"pretraining_tp", Use::training},
    {"original_max_position_embeddings", Use::training},  // read where positions are scaled
    {"attention_bias", Use::fixed, "[false, null]"},
    {"mlp_bias", Use::fixed, "[false, null]"},
    {"partial_rotary_factor", Use::fixed, "[1, null]"},
};

class Llama final : public Architecture {
 public:
  ModelRules rules() const override {
    return {.doc = "has rotary positions, RMSNorm, SwiGLU and grouped queries",
            .positions = Positions::rotary,
            .gated_mlp = true,
            .tied = false,
            .padding_row = true};
  }

  bool layers_alike() const override { return true; }

  TransformerShape shape(const Config& config) const override {
    TransformerShape shape = transformer_shape(config);
    shape.positions = 0;
    shape.swiglu = true;
    shape.rotary = true;
    return shape;
  }

  std::vector<HuggingFaceTensor> hugging_face(const TransformerShape& shape,
                                              const std::string& name,
                                              const Shape& global) const override {
    const auto whole = [&](const std::string& hf) {
      return std::vector<HuggingFaceTensor>{{hf, 0, global.dim(0), false}};
    };
    if (name == "embedding.weight") return whole("model.embed_tokens.weight");
    if (name == "final_norm.weight") return whole("model.norm.weight");
    if (name == "output.weight") return whole("lm_head.weight");
    const LayerName layer = parse_layer_name(name);
    const std::string prefix = fmt::format("model.layers.{}.", layer.index);
    if (layer.rest == "attention_norm.weight") return whole(prefix + "input_layernorm.weight");
    if (layer.rest == "mlp_norm.weight") return whole(prefix + "post_attention_layernorm.weight");
    if (layer.rest == "attention.output.weight") return whole(prefix + "self_attn.o_proj.weight");
    if (layer.rest == "mlp.down.weight") return whole(prefix + "mlp.down_proj.weight");
    if (layer.rest == "attention.qkv.weight") {
      const std::int64_t q = shape.heads * shape.head_dim(), kv = shape.groups * shape.head_dim();
      return {{prefix + "self_attn.q_proj.weight", 0, q, false},
              {prefix + "self_attn.k_proj.weight", q, kv, false},
              {prefix + "self_attn.v_proj.weight", q + kv, kv, false}};
    }
    if (layer.rest == "mlp.up.weight") {
      return {{prefix + "mlp.gate_proj.weight", 0, shape.ffn, false},
              {prefix + "mlp.up_proj.weight", shape.ffn, shape.ffn, false}};
    }
    throw Error("llama: no Hugging Face name for parameter " + name);
  }

  std::string hugging_face_config(const Config& config) const override {
    const ModelConfig& m = config.model;
    nlohmann::ordered_json written{
        {"architectures", {"LlamaForCausalLM"}},
        {"model_type", "llama"},
        {"hidden_act", "silu"},
        {"num_hidden_layers", m.num_layers},
        {"hidden_size", m.hidden_size},
        {"num_attention_heads", m.num_attention_heads},
        {"num_key_value_heads", m.num_query_groups},
        {"head_dim", config.head_dim()},
        {"intermediate_size", m.ffn_hidden_size},
        {"max_position_embeddings", m.max_position_embeddings},
        {"vocab_size", m.vocab_size},
        {"rms_norm_eps", m.norm_epsilon},
        {"rope_theta", m.rotary_base},
        {"initializer_range", m.init_method_std},
        {"attention_dropout", m.attention_dropout},
        {"attention_bias", false},
        {"mlp_bias", false},
        {"tie_word_embeddings", m.tie_word_embeddings},
        {"bos_token_id", nullptr},
        {"eos_token_id", nullptr},
        {"torch_dtype", torch_name_of(dtype_of(config.precision.dtype))}};
    if (m.pad_token_id) written["pad_token_id"] = *m.pad_token_id;
    return json_text(written, 2);
  }

  std::string model_config(std::string_view text) const override {
    HuggingFaceConfig hf = read(text);
    const std::int64_t heads = hf.size("num_attention_heads"), hidden = hf.size("hidden_size");
    if (hf.size_or("head_dim", hidden / heads) != hidden / heads) {
      hf.refuse("head_dim", fmt::format("not supported; only hidden_size / num_attention_heads, {}",
                                        hidden / heads));
    }
    const std::int64_t vocabulary = hf.size("vocab_size");
    nlohmann::json model{{"architecture", "llama"},
                         {"num_layers", hf.size("num_hidden_layers")},
                         {"hidden_size", hidden},
                         {"num_attention_heads", heads},
                         {"num_query_groups", hf.size_or("num_key_value_heads", heads)},
                         {"ffn_hidden_size", hf.size("intermediate_size")},
                         {"max_position_embeddings", hf.size("max_position_embeddings")},
                         {"vocab_size", vocabulary},
                         {"norm_epsilon", hf.number_or("rms_norm_eps", 1e-6)},
                         {"rotary_base", hf.rotary_base()},
                         {"tie_word_embeddings", hf.flag_or("tie_word_embeddings", false)}};
    if (const auto padding = hf.token_below("pad_token_id", vocabulary)) {
      model["pad_token_id"] = *padding;
    }
    hf.require_word("hidden_act", {"silu", "swish"});
    hf.finish();
    return json_text(model);
  }

  std::string kept_config(std::string_view text, bool conversion) const override {
    return read(text).kept(conversion);
  }
  std::vector<std::string> unread_keys(std::string_view text) const override {
    return read(text).unread();
  }

  std::optional<GgufForm> gguf(const Config& config) const override {
    const ModelConfig& m = config.model;
    const std::string layer = "model.layers.*.";
    return GgufForm{
        .architecture = "llama",
        .sizes = {{"context_length", m.max_position_embeddings},
                  {"embedding_length", m.hidden_size},
                  {"block_count", m.num_layers},
                  {"feed_forward_length", m.ffn_hidden_size},
                  {"attention.head_count", m.num_attention_heads},
                  {"attention.head_count_kv", m.num_query_groups},
                  {"rope.dimension_count", config.head_dim()}},
        .numbers = {{"attention.layer_norm_rms_epsilon", m.norm_epsilon},
                    {"rope.freq_base", m.rotary_base}},
        .names = {{"model.embed_tokens.weight", "token_embd.weight"},
                  {"model.norm.weight", "output_norm.weight"},
                  {"lm_head.weight", "output.weight"},
                  {layer + "input_layernorm.weight", "blk.*.attn_norm.weight"},
                  {layer + "self_attn.q_proj.weight", "blk.*.attn_q.weight", m.num_attention_heads},
                  {layer + "self_attn.k_proj.weight", "blk.*.attn_k.weight", m.num_query_groups},
                  {layer + "self_attn.v_proj.weight", "blk.*.attn_v.weight"},
                  {layer + "self_attn.o_proj.weight", "blk.*.attn_output.weight"},
                  {layer + "post_attention_layernorm.weight", "blk.*.ffn_norm.weight"},
                  {layer + "mlp.gate_proj.weight", "blk.*.ffn_gate.weight"},
                  {layer + "mlp.up_proj.weight", "blk.*.ffn_up.weight"},
                  {layer + "mlp.down_proj.weight", "blk.*.ffn_down.weight"}}};
  }

  std::vector<std::string> buffers(std::int64_t layer) const override {
    return {fmt::format("model.layers.{}.self_attn.rotary_emb.inv_freq", layer),
            "model.rotary_emb.inv_freq"};  // follow from the base
  }

 private:
  static HuggingFaceConfig read(std::string_view text) {
    return HuggingFaceConfig(text, "llama", {"LlamaForCausalLM", "LlamaModel", "LLaMAForCausalLM"},
                             llama_keys);
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_llama() {
  return std::make_shared<Llama>();
}

}  // namespace trident
