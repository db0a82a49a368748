// GPT-2 (Radford 2019): learned positions, LayerNorm, GELU (tanh), biases, tied embeddings.
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

// Those of transformers' GPT2Config, 4.30 to 5.24. A padding token changes nothing of its
// embedding.
constexpr HuggingFaceKey gpt2_keys[] = {
    {"vocab_size", Use::model},
    {"n_positions", Use::model},
    {"max_position_embeddings", Use::model},
    {"n_embd", Use::model},
    {"hidden_size", Use::model},
    {"n_layer", Use::model},
    {"num_hidden_layers", Use::model},
    {"n_head", Use::model},
    {"num_attention_heads", Use::model},
    {"n_inner", Use::model},
    {"activation_function", Use::model},
    {"layer_norm_epsilon", Use::model},
    {"n_ctx", Use::training},  // once the size of the mask, now read by nothing
    {"resid_pdrop", Use::training},
    {"embd_pdrop", Use::training},
    {"attn_pdrop", Use::training},
    // The same product and softmax, in another order of rounding.
    {"reorder_and_upcast_attn", Use::training},
    {"add_cross_attention", Use::fixed, "[false, null]"},
    {"scale_attn_weights", Use::fixed, "[true]"},
    {"scale_attn_by_inverse_layer_idx", Use::fixed, "[false, null]"},
    // Of heads that a language model doesn't have.
    {"summary_type", Use::weights},
    {"summary_use_proj", Use::weights},
    {"summary_activation", Use::weights},
    {"summary_proj_to_labels", Use::weights},
    {"summary_first_dropout", Use::weights},
    {"summary_last_dropout", Use::weights},
    {"classifier_dropout", Use::weights},
    {"predict_special_tokens", Use::weights},
};

class Gpt2 final : public Architecture {
 public:
  ModelRules rules() const override {
    return {.doc = "has learned positions, LayerNorm and GELU",
            .positions = Positions::learned,
            .grouped_queries = false};
  }

  bool layers_alike() const override { return true; }

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
    return json_text(
        nlohmann::ordered_json{{"architectures", {"GPT2LMHeadModel"}},
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
                               {"torch_dtype", torch_name_of(dtype_of(config.precision.dtype))}},
        2);
  }

  std::string model_config(std::string_view text) const override {
    HuggingFaceConfig hf = read(text);
    const std::int64_t hidden = hf.size("n_embd", "hidden_size");
    const nlohmann::json model{
        {"architecture", "gpt2"},
        {"num_layers", hf.size("n_layer", "num_hidden_layers")},
        {"hidden_size", hidden},
        {"num_attention_heads", hf.size("n_head", "num_attention_heads")},
        {"ffn_hidden_size", hf.size_or("n_inner", 4 * hidden)},
        {"max_position_embeddings", hf.size("n_positions", "max_position_embeddings")},
        {"vocab_size", hf.size("vocab_size")},
        {"norm_epsilon", hf.number_or("layer_norm_epsilon", 1e-5)},
        {"tie_word_embeddings", hf.flag_or("tie_word_embeddings", true)}};
    // All of them the tanh form; "gelu" is the exact one.
    hf.require_word("activation_function",
                    {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast"});
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
    GgufForm form{.architecture = "gpt2",
                  .sizes = {{"context_length", m.max_position_embeddings},
                            {"embedding_length", m.hidden_size},
                            {"block_count", m.num_layers},
                            {"feed_forward_length", m.ffn_hidden_size},
                            {"attention.head_count", m.num_attention_heads}},
                  .numbers = {{"attention.layer_norm_epsilon", m.norm_epsilon}},
                  .names = {{"transformer.wte.weight", "token_embd.weight"},
                            {"transformer.wpe.weight", "position_embd.weight"},
                            {"lm_head.weight", "output.weight"}}};
    static constexpr std::pair<const char*, const char*> names[] = {
        {"transformer.ln_f", "output_norm"},
        {"transformer.h.*.ln_1", "blk.*.attn_norm"},
        {"transformer.h.*.attn.c_attn", "blk.*.attn_qkv"},
        {"transformer.h.*.attn.c_proj", "blk.*.attn_output"},
        {"transformer.h.*.ln_2", "blk.*.ffn_norm"},
        {"transformer.h.*.mlp.c_fc", "blk.*.ffn_up"},
        {"transformer.h.*.mlp.c_proj", "blk.*.ffn_down"}};
    for (const auto& [theirs, there] : names) {
      for (const std::string kind : {".weight", ".bias"}) {
        form.names.push_back({theirs + kind, there + kind});
      }
    }
    return form;
  }

  std::vector<std::string> buffers(std::int64_t layer) const override {
    const std::string attention = fmt::format("transformer.h.{}.attn.", layer);
    return {attention + "bias", attention + "masked_bias"};  // the causal mask
  }

 private:
  static HuggingFaceConfig read(std::string_view text) {
    return HuggingFaceConfig(text, "gpt2", {"GPT2LMHeadModel", "GPT2Model"}, gpt2_keys);
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_gpt2() {
  return std::make_shared<Gpt2>();
}

}  // namespace trident
