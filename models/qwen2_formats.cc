// Qwen2's files, as transformers' Qwen2ForCausalLM and llama.cpp store them: Llama's, with biases
// of queries, keys and values.
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "models/llama_formats.h"

namespace trident {
namespace {

using Use = HuggingFaceUse;

// The keys that transformers' Qwen2Config, 4.37 to 5.24, has beside Llama's. A window that
// use_sliding_window doesn't switch on has no effect, nor has max_window_layers then. transformers
// refuses other types of them (5.24), and a head_dim of null, which this class has no default for.
constexpr HuggingFaceKey qwen2_keys[] = {
    {"use_sliding_window", Use::fixed, "[false]"},
    {"sliding_window", Use::model},
    {"max_window_layers", Use::model},
    {"layer_types", Use::model},
};

constexpr std::string_view qwen2_classes[] = {"Qwen2ForCausalLM", "Qwen2Model"};

std::string qwen2_write_config(const Config& config) {
  nlohmann::ordered_json written = llama_config(config, "qwen2", "Qwen2ForCausalLM");
  written["use_sliding_window"] = false;
  return json_text(written, 2);
}

std::string qwen2_read_config(HuggingFaceConfig& hf) {
  const nlohmann::json model = llama_model(hf, "qwen2", 32);
  hf.require_words("layer_types", "full_attention", model.at("num_layers").get<std::int64_t>());
  hf.require_whole("sliding_window", true);
  hf.require_whole("max_window_layers", false);
  if (!hf.is_missing("head_dim") && !hf.gives("head_dim")) {
    hf.refuse("head_dim", "not supported; leave it out");
  }
  hf.finish();
  return json_text(model);
}

const FamilyFormatTables& qwen2_tables() {
  static const FamilyFormatTables tables{.model_type = "qwen2",
                                         .classes = qwen2_classes,
                                         .keys = {qwen2_keys, llama_shared_keys()},
                                         .tensors = llama_tensors(),
                                         .buffers = llama_buffers(),
                                         .write_config = qwen2_write_config,
                                         .read_config = qwen2_read_config,
                                         .gguf_sizes = llama_gguf_sizes,
                                         .gguf_numbers = llama_gguf_numbers};
  return tables;
}

}  // namespace

const FamilyFormatTables& qwen2_formats() {
  return qwen2_tables();
}

}  // namespace trident
