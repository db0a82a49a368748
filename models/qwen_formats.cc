// The files of Qwen 2 and 3, as transformers' Qwen2ForCausalLM and Qwen3ForCausalLM and llama.cpp
// store them: Llama's, with biases of queries, keys and values (2) or norms of queries and keys
// (3).
#include "models/qwen_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/files/json.h"
#include "models/llama_formats.h"

namespace trident {
namespace {

using Use = HuggingFaceUse;

// The keys that transformers' Qwen2Config, 4.37 to 5.24, has beside Llama's. transformers refuses
// other types of them (5.24), and a head_dim of null, which this class has no default for.
constexpr HuggingFaceKey qwen2_keys[] = {
    {"use_sliding_window", Use::model},
    {"sliding_window", Use::model},
    {"max_window_layers", Use::model},
    {"layer_types", Use::model},
};
// Those of Qwen3Config, 4.51 to 5.24.
constexpr HuggingFaceKey qwen3_keys[] = {
    {"attention_bias", Use::model}, {"use_sliding_window", Use::model},
    {"sliding_window", Use::model}, {"max_window_layers", Use::model},
    {"layer_types", Use::model},
};

constexpr std::string_view qwen2_classes[] = {"Qwen2ForCausalLM", "Qwen2Model"};
constexpr std::string_view qwen3_classes[] = {"Qwen3ForCausalLM", "Qwen3Model"};

// The layers from max_window_layers on (transformers 5.24, Qwen2Config and Qwen3Config).
std::vector<std::int64_t> last_layers(std::int64_t layers, std::int64_t max_window_layers) {
  const std::int64_t first = std::clamp<std::int64_t>(max_window_layers, 0, layers);
  std::vector<std::int64_t> slide(static_cast<std::size_t>(layers - first));
  std::iota(slide.begin(), slide.end(), first);
  return slide;
}

void read_window(HuggingFaceConfig& hf, nlohmann::json& model) {
  const auto layers = model.at("num_layers").get<std::int64_t>();
  read_qwen_window(hf, model, [&](std::int64_t first) { return last_layers(layers, first); });
}

std::string qwen2_write_config(const ModelConfig& model, DType dtype) {
  nlohmann::ordered_json written = llama_config(model, dtype, "qwen2", "Qwen2ForCausalLM");
  write_qwen_window(model, written);
  return json_text(written, 2);
}

std::string qwen2_read_config(HuggingFaceConfig& hf) {
  nlohmann::json model = llama_model(hf, "qwen2", {.groups = 32});
  read_window(hf, model);
  if (!hf.is_missing("head_dim") && !hf.gives("head_dim")) {
    hf.refuse("head_dim", "not supported; leave it out");
  }
  hf.finish();
  return json_text(model);
}

void qwen2_gguf_keys(const ModelConfig& m, GgufForm& form) {
  llama_gguf_keys(m, form);
  if (m.head_dim * m.num_attention_heads != m.hidden_size) {
    throw RequestError(
        fmt::format("llama.cpp's qwen2 has heads of hidden_size / "
                    "num_attention_heads only; this model's have {} elements",
                    m.head_dim));
  }
}

void qwen3_gguf_keys(const ModelConfig& model, GgufForm& form) {
  llama_gguf_keys(model, form);
  if (model.attention_bias) {
    throw RequestError("llama.cpp's qwen3 has no attention_bias, but this model has one");
  }
}

std::string qwen3_write_config(const ModelConfig& model, DType dtype) {
  nlohmann::ordered_json written = llama_config(model, dtype, "qwen3", "Qwen3ForCausalLM");
  written["attention_bias"] = model.attention_bias;
  write_qwen_window(model, written);
  return json_text(written, 2);
}

std::string qwen3_read_config(HuggingFaceConfig& hf) {
  nlohmann::json model = llama_model(hf, "qwen3", {.groups = 32});
  read_window(hf, model);
  model["attention_bias"] = hf.flag_or("attention_bias", false);
  if (hf.is_missing("head_dim")) {
    model["head_dim"] = 128;
  } else if (!hf.gives("head_dim")) {
    hf.refuse("head_dim", "needs a whole number from 1 to 1000000000");
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
                                         .gguf_keys = qwen2_gguf_keys};
  return tables;
}

const FamilyFormatTables& qwen3_tables() {
  static const FamilyFormatTables tables{.model_type = "qwen3",
                                         .classes = qwen3_classes,
                                         .keys = {qwen3_keys, llama_shared_keys()},
                                         .tensors = llama_tensors(),
                                         .buffers = llama_buffers(),
                                         .write_config = qwen3_write_config,
                                         .read_config = qwen3_read_config,
                                         .gguf_keys = qwen3_gguf_keys};
  return tables;
}

}  // namespace

// Layers have the window if use_sliding_window is set.
void read_qwen_window(HuggingFaceConfig& hf, nlohmann::json& model,
                      const std::function<std::vector<std::int64_t>(std::int64_t)>& usual) {
  const bool used = hf.flag_or("use_sliding_window", false);
  hf.require_whole("sliding_window", true);
  hf.require_whole("max_window_layers", false);
  const auto layers = model.at("num_layers").get<std::int64_t>();
  const auto listed = hf.layers_of("layer_types", "sliding_attention", "full_attention", layers);
  const bool has_window = used && (hf.is_missing("sliding_window") || hf.gives("sliding_window"));
  if (!has_window) {
    if (listed && !listed->empty()) {
      hf.refuse("layer_types",
                "asks for a window, but use_sliding_window and sliding_window set none");
    }
    return;
  }
  if (layers > most_layers) return;  // the model is refused for its size
  const std::vector<std::int64_t> slide =
      listed ? *listed : usual(hf.whole_or("max_window_layers", 28));
  if (slide.empty()) return;
  model["sliding_window"] = hf.size_or("sliding_window", 4096);
  model["window_layers"] = slide;
}

void write_qwen_window(const ModelConfig& model, nlohmann::ordered_json& written) {
  written["use_sliding_window"] = model.sliding_window.has_value();
  if (!model.sliding_window) return;
  const std::vector<std::int64_t>& slide = model.window_layers;
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (std::int64_t i = 0; i < model.num_layers; ++i) {
    const bool slides = std::ranges::binary_search(slide, i);
    types.push_back(slides ? "sliding_attention" : "full_attention");
  }
  written["sliding_window"] = *model.sliding_window;
  // Where the layers are no range up to the last one, only layer_types names them.
  written["max_window_layers"] =
      model.num_layers - std::ssize(slide) == slide.front() ? slide.front() : model.num_layers;
  written["layer_types"] = types;
}

const FamilyFormatTables& qwen2_formats() {
  return qwen2_tables();
}
const FamilyFormatTables& qwen3_formats() {
  return qwen3_tables();
}

}  // namespace trident
