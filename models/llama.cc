// Llama (Touvron 2023): RoPE, RMSNorm, SwiGLU, grouped queries (Ainslie 2023), no biases.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/architecture.h"
#include "models/layer_name.h"

namespace trident {
namespace {

class Llama final : public Architecture {
 public:
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
    return nlohmann::ordered_json{{"architectures", {"LlamaForCausalLM"}},
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
                                  {"torch_dtype", torch_name_of(dtype_of(config.precision.dtype))}}
        .dump(2);
  }

  std::string model_config(std::string_view text) const override {
    const auto hf = nlohmann::json::parse(text);
    const std::int64_t heads = hf.at("num_attention_heads"), hidden = hf.at("hidden_size");
    if (hf.contains("rope_scaling") && !hf["rope_scaling"].is_null() &&
        hf["rope_scaling"].value("rope_type", "default") != "default") {
      throw RequestError("llama: config.json: rope_scaling is not supported");
    }
    if (hf.value("attention_bias", false) || hf.value("mlp_bias", false)) {
      throw RequestError("llama: config.json: attention_bias and mlp_bias are not supported");
    }
    if (hf.contains("head_dim") && !hf["head_dim"].is_null() && hf["head_dim"] != hidden / heads) {
      throw RequestError("llama: config.json: head_dim must be hidden_size / num_attention_heads");
    }
    double base = 10000.0;
    if (hf.contains("rope_theta") && hf["rope_theta"].is_number()) base = hf["rope_theta"];
    if (hf.contains("rope_parameters") && hf["rope_parameters"].is_object()) {
      base = hf["rope_parameters"].value("rope_theta", base);
    }
    return nlohmann::json{{"architecture", "llama"},
                          {"num_layers", hf.at("num_hidden_layers")},
                          {"hidden_size", hidden},
                          {"num_attention_heads", heads},
                          {"num_query_groups", hf.value("num_key_value_heads", heads)},
                          {"ffn_hidden_size", hf.at("intermediate_size")},
                          {"max_position_embeddings", hf.at("max_position_embeddings")},
                          {"vocab_size", hf.at("vocab_size")},
                          {"norm_epsilon", hf.value("rms_norm_eps", 1e-5)},
                          {"rotary_base", base},
                          {"tie_word_embeddings", hf.value("tie_word_embeddings", false)}}
        .dump();
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_llama() {
  return std::make_shared<Llama>();
}

}  // namespace trident
