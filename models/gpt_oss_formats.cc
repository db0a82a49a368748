// gpt-oss's files, as transformers' GptOssForCausalLM stores them: Llama's, with a tensor of all
// experts of a layer, inputs first, in which gate and up columns take turns.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/json.h"
#include "models/expert_formats.h"
#include "models/llama_formats.h"

namespace trident {
namespace {

using Use = HuggingFaceUse;

// The keys that transformers' GptOssConfig, 4.55 to 5.24, has beside Llama's.
constexpr HuggingFaceKey gpt_oss_keys[] = {
    {"attention_bias", Use::fixed, "[true]"},
    {"swiglu_alpha", Use::fixed, "[1.702]"},
    {"swiglu_limit", Use::fixed, "[7]"},
    {"num_local_experts", Use::model},
    {"num_experts", Use::model},
    {"num_experts_per_tok", Use::model},
    {"sliding_window", Use::model},
    {"layer_types", Use::model},
    {"router_aux_loss_coef", Use::training},
    {"output_router_logits", Use::training},
    {"quantization_config", Use::model},
};

constexpr std::string_view gpt_oss_classes[] = {"GptOssForCausalLM", "GptOssModel"};

const std::vector<StoredTensor>& gpt_oss_tensors() {
  static const std::vector<StoredTensor> tensors = [] {
    auto all = with_expert_tensors({{.ours = "layers.*.attention.sinks",
                                     .hugging_face = "model.layers.*.self_attn.sinks",
                                     .gguf = "blk.*.attn_sinks.weight"},
                                    {.ours = "layers.*.mlp.router.weight",
                                     .hugging_face = "model.layers.*.mlp.router.weight",
                                     .gguf = "blk.*.ffn_gate_inp.weight"},
                                    {.ours = "layers.*.mlp.router.bias",
                                     .hugging_face = "model.layers.*.mlp.router.bias",
                                     .gguf = "blk.*.ffn_gate_inp.bias"},
                                    {.ours = "layers.*.mlp.experts.up",
                                     .hugging_face = "model.layers.*.mlp.experts.gate_up_proj",
                                     .gguf = "blk.*.ffn_gate_exps.weight",
                                     .gguf_other_columns = "blk.*.ffn_up_exps.weight",
                                     .inputs_first = true},
                                    {.ours = "layers.*.mlp.experts.up_bias",
                                     .hugging_face = "model.layers.*.mlp.experts.gate_up_proj_bias",
                                     .gguf = "blk.*.ffn_gate_exps.bias",
                                     .gguf_other_columns = "blk.*.ffn_up_exps.bias"},
                                    {.ours = "layers.*.mlp.experts.down",
                                     .hugging_face = "model.layers.*.mlp.experts.down_proj",
                                     .gguf = "blk.*.ffn_down_exps.weight",
                                     .inputs_first = true},
                                    {.ours = "layers.*.mlp.experts.down_bias",
                                     .hugging_face = "model.layers.*.mlp.experts.down_proj_bias",
                                     .gguf = "blk.*.ffn_down_exps.bias"}});
    for (StoredTensor& one : all) {  // llama.cpp's name for it in this family
      if (one.gguf == "blk.*.ffn_norm.weight") one.gguf = "blk.*.post_attention_norm.weight";
    }
    return all;
  }();
  return tensors;
}

std::string gpt_oss_write_config(const ModelConfig& model, DType dtype) {
  nlohmann::ordered_json written = llama_config(model, dtype, "gpt_oss", "GptOssForCausalLM");
  written["intermediate_size"] = model.moe.ffn_hidden_size;
  written["attention_bias"] = true;
  written["swiglu_alpha"] = 1.702;
  written["swiglu_limit"] = 7.0;
  write_experts(model.moe, "num_local_experts", written);
  if (model.rope_scaling.rope_type == "default") {
    // transformers takes yarn where a file says nothing of scaling.
    written["rope_scaling"] = nullptr;
    written["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", model.rotary_base}};
  }
  written["sliding_window"] = model.sliding_window.value_or(128);
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (std::int64_t i = 0; i < model.num_layers; ++i) {
    const bool slides = model.sliding_window && std::ranges::binary_search(model.window_layers, i);
    types.push_back(slides ? "sliding_attention" : "full_attention");
  }
  written["layer_types"] = types;
  return json_text(written, 2);
}

// Every other layer has a window where the file doesn't list them.
void read_window(HuggingFaceConfig& hf, std::int64_t layers, nlohmann::json& model) {
  auto slide = hf.layers_of("layer_types", "sliding_attention", "full_attention", layers);
  if (!slide) {
    slide.emplace();
    for (std::int64_t i = 0; i < layers; i += 2) slide->push_back(i);
  }
  if (slide->empty()) return;
  if (!hf.is_missing("sliding_window") && !hf.gives("sliding_window")) {
    hf.refuse("sliding_window", "not supported; layers have a window, so give its size");
  }
  model["sliding_window"] = hf.size_or("sliding_window", 128);
  model["window_layers"] = std::move(*slide);
}

std::string gpt_oss_read_config(HuggingFaceConfig& hf) {
  if (hf.gives("quantization_config")) {
    hf.refuse("quantization_config",
              "quantized weights are not read; convert the folder to bf16 first, for MXFP4 by "
              "from_pretrained() of transformers with Mxfp4Config(dequantize=True), then "
              "save_pretrained()");
  }
  for (const char* key : {"num_experts_per_tok", "head_dim", "router_aux_loss_coef",
                          "output_router_logits", "rms_norm_eps", "tie_word_embeddings"}) {
    if (!hf.is_missing(key) && !hf.gives(key)) hf.refuse(key, "transformers fails with this");
  }
  nlohmann::json model =
      llama_model(hf, "gpt_oss", {.groups = 8, .norm_epsilon = 1e-5, .rotary_base = 150000});
  if (hf.is_missing("head_dim")) model["head_dim"] = 64;
  if (!hf.gives("rope_parameters") && !hf.gives_members("rope_scaling")) {
    constexpr auto kOriginal = "original_max_position_embeddings";
    if (!hf.is_missing(kOriginal) && !hf.gives(kOriginal)) {
      hf.refuse(kOriginal, "transformers fails with this");
    }
    model["rope_scaling"].update({{"rope_type", "yarn"},
                                  {"factor", 32.0},
                                  {"beta_fast", 32.0},
                                  {"beta_slow", 1.0},
                                  {"truncate", false},
                                  {kOriginal, hf.size_or(kOriginal, 4096)}});
  }
  const auto layers = model.at("num_layers").get<std::int64_t>();
  if (layers <= most_layers) {  // else the model is refused for its size
    read_window(hf, layers, model);
    const std::string_view count = hf.gives("num_experts") ? "num_experts" : "num_local_experts";
    model["moe"] = moe_model(hf, {.count_key = count, .topk = 4}, model.at("ffn_hidden_size"),
                             std::vector<std::int64_t>(static_cast<std::size_t>(layers), 1));
  }
  hf.finish();
  return json_text(model);
}

void gpt_oss_gguf_keys(const ModelConfig& asked, GgufForm& form) {
  ModelConfig model = asked;
  // llama.cpp lets every other layer slide, from the first on. With a window as long as the
  // positions, or none, it doesn't matter which.
  const auto window = std::exchange(model.sliding_window, {});
  const std::int64_t positions = model.max_position_embeddings;
  if (window && *window < positions) {
    for (std::int64_t i = 0; i < model.num_layers; ++i) {
      const auto& layers = model.window_layers;
      const bool slides = std::ranges::find(layers, i) != layers.end();
      if (slides == (i % 2 == 0)) continue;
      throw RequestError(
          "llama.cpp's gpt-oss has a sliding window in every other layer, from the first on; this "
          "model has other windows");
    }
  }
  // Of yarn it has truncate true alone, which moves the bounds between frequencies a little. The
  // files of llama.cpp's own converter don't say so either.
  if (model.rope_scaling.rope_type == "yarn" && !model.rope_scaling.truncate) {
    model.rope_scaling.truncate = true;
    form.notes.emplace_back(
        "llama.cpp rounds the bounds of yarn's frequencies, which this model's rope_scaling "
        "(truncate false) doesn't");
  }
  model.attention_bias = false;  // llama.cpp's gpt-oss has it, unlike its other families
  expert_gguf_keys(model, {.normalized = model.moe.norm_topk_prob, .may_be_tied = false}, form);
  form.sizes.emplace_back("attention.sliding_window", window.value_or(positions));
}

}  // namespace

const FamilyFormatTables& gpt_oss_formats() {
  static const FamilyFormatTables tables{.model_type = "gpt_oss",
                                         .classes = gpt_oss_classes,
                                         .keys = {gpt_oss_keys, llama_shared_keys()},
                                         .tensors = gpt_oss_tensors(),
                                         .buffers = llama_buffers(),
                                         .write_config = gpt_oss_write_config,
                                         .read_config = gpt_oss_read_config,
                                         .gguf_architecture = "gpt-oss",
                                         .gguf_keys = gpt_oss_gguf_keys};
  return tables;
}

}  // namespace trident
