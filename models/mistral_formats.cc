// Mistral's files, as transformers' MistralForCausalLM stores them: Llama's, without biases.
// llama.cpp has no name of its own for it.
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "base/files/json.h"
#include "models/llama_formats.h"

namespace trident {
namespace {

using Use = HuggingFaceUse;

// The key that transformers' MistralConfig, 4.34 to 5.24, has beside Llama's. If it is missing, the
// window has 4096 positions; null: none. All layers have it.
constexpr HuggingFaceKey mistral_keys[] = {{"sliding_window", Use::model}};

constexpr std::string_view mistral_classes[] = {"MistralForCausalLM", "MistralModel"};

std::string mistral_write_config(const ModelConfig& model, DType dtype) {
  nlohmann::ordered_json written = llama_config(model, dtype, "mistral", "MistralForCausalLM");
  written["sliding_window"] = nullptr;
  if (model.sliding_window) written["sliding_window"] = *model.sliding_window;
  return json_text(written, 2);
}

std::string mistral_read_config(HuggingFaceConfig& hf) {
  nlohmann::json model = llama_model(hf, "mistral", {.groups = 8});
  const auto layers = model.at("num_layers").get<std::int64_t>();
  const bool slides = hf.is_missing("sliding_window") || hf.gives("sliding_window");
  if (slides && layers <= most_layers) {  // else the model is refused for its size
    model["sliding_window"] = hf.size_or("sliding_window", 4096);
    std::vector<std::int64_t> all(static_cast<std::size_t>(layers));
    std::iota(all.begin(), all.end(), 0);
    model["window_layers"] = std::move(all);
  }
  if (!hf.is_missing("num_key_value_heads") && !hf.gives("num_key_value_heads")) {
    hf.refuse("num_key_value_heads", "needs a whole number from 1 to 1000000000");
  }
  if (!hf.is_missing("layer_types")) {
    hf.refuse("layer_types", "transformers loads another family with this key; leave it out");
  }
  hf.finish();
  return json_text(model);
}

const FamilyFormatTables& mistral_tables() {
  static const FamilyFormatTables tables{.model_type = "mistral",
                                         .classes = mistral_classes,
                                         .keys = {mistral_keys, llama_shared_keys()},
                                         .tensors = llama_tensors(),
                                         .buffers = llama_buffers(),
                                         .write_config = mistral_write_config,
                                         .read_config = mistral_read_config,
                                         .gguf_architecture = "llama",
                                         .gguf_interleaves = true,
                                         .gguf_keys = llama_gguf_keys};
  return tables;
}

}  // namespace

const FamilyFormatTables& mistral_formats() {
  return mistral_tables();
}

}  // namespace trident
