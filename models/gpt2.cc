// GPT-2 (Radford 2019): learned positions, LayerNorm, GELU (tanh), biases, tied embeddings.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/architecture.h"
#include "models/layer_name.h"

namespace trident {
namespace {

class Gpt2 final : public Architecture {
 public:
  TransformerShape shape(const Config& config) const override {
    TransformerShape shape = transformer_shape(config);
    shape.biases = true;
    return shape;
  }

  std::vector<HuggingFaceTensor> hugging_face(const TransformerShape&, const std::string& name,
                                              const Shape& global) const override {
    const auto whole = [&](const std::string& hf, bool transposed = false) {
      return std::vector<HuggingFaceTensor>{{hf, 0, global.dim(0), transposed}};
    };
    if (name == "embedding.weight") return whole("transformer.wte.weight");
    if (name == "positions.weight") return whole("transformer.wpe.weight");
    if (name == "final_norm.weight") return whole("transformer.ln_f.weight");
    if (name == "final_norm.bias") return whole("transformer.ln_f.bias");
    if (name == "output.weight") return whole("lm_head.weight");
    const LayerName layer = parse_layer_name(name);
    static constexpr std::pair<const char*, const char*> names[] = {
        {"attention_norm.", "ln_1."},
        {"attention.qkv.", "attn.c_attn."},
        {"attention.output.", "attn.c_proj."},
        {"mlp_norm.", "ln_2."},
        {"mlp.up.", "mlp.c_fc."},
        {"mlp.down.", "mlp.c_proj."}};
    for (const auto& [ours, theirs] : names) {
      if (!layer.rest.starts_with(ours)) continue;
      const std::string kind = layer.rest.substr(std::string_view(ours).size());
      return whole(fmt::format("transformer.h.{}.{}{}", layer.index, theirs, kind),
                   global.rank() == 2);  // Conv1D weights are (in, out)
    }
    throw Error("gpt2: no Hugging Face name for parameter " + name);
  }

  std::string hugging_face_config(const Config& config) const override {
    const ModelConfig& m = config.model;
    return nlohmann::ordered_json{{"architectures", {"GPT2LMHeadModel"}},
                                  {"model_type", "gpt2"},
                                  {"activation_function", "gelu_new"},
                                  {"n_layer", m.num_layers},
                                  {"n_embd", m.hidden_size},
                                  {"n_head", m.num_attention_heads},
                                  {"n_inner", m.ffn_hidden_size},
                                  {"n_positions", m.max_position_embeddings},
                                  {"n_ctx", m.max_position_embeddings},
                                  {"vocab_size", m.vocab_size},
                                  {"layer_norm_epsilon", m.norm_epsilon},
                                  {"initializer_range", m.init_method_std},
                                  {"resid_pdrop", m.hidden_dropout},
                                  {"embd_pdrop", m.hidden_dropout},
                                  {"attn_pdrop", m.attention_dropout},
                                  {"tie_word_embeddings", m.tie_word_embeddings},
                                  {"bos_token_id", nullptr},
                                  {"eos_token_id", nullptr},
                                  {"torch_dtype", torch_name_of(dtype_of(config.precision.dtype))}}
        .dump(2);
  }

  std::string model_config(std::string_view text) const override {
    const auto hf = nlohmann::json::parse(text);
    const std::int64_t hidden = hf.at("n_embd");
    std::int64_t inner = 4 * hidden;
    if (hf.contains("n_inner") && !hf["n_inner"].is_null()) inner = hf["n_inner"];
    return nlohmann::json{{"architecture", "gpt2"},
                          {"num_layers", hf.at("n_layer")},
                          {"hidden_size", hidden},
                          {"num_attention_heads", hf.at("n_head")},
                          {"ffn_hidden_size", inner},
                          {"max_position_embeddings", hf.at("n_positions")},
                          {"vocab_size", hf.at("vocab_size")},
                          {"norm_epsilon", hf.value("layer_norm_epsilon", 1e-5)},
                          {"tie_word_embeddings", hf.value("tie_word_embeddings", true)}}
        .dump();
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_gpt2() {
  return std::make_shared<Gpt2>();
}

}  // namespace trident
