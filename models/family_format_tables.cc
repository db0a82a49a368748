#include "models/family_format_tables.h"

#include <fmt/format.h>

#include "base/error.h"
#include "models/layer_name.h"

namespace trident {
namespace {

// `pattern` with its "*" replaced by `layer`, its "#" by `expert`.
std::string named(std::string_view pattern, std::string_view layer, std::int64_t expert = 0) {
  std::string name(pattern);
  if (const auto at = name.find('*'); at != std::string::npos) name.replace(at, 1, layer);
  if (const auto at = name.find('#'); at != std::string::npos) {
    name.replace(at, 1, std::to_string(expert));
  }
  return name;
}

bool is_of_expert(StoredRows rows) {
  return rows == StoredRows::expert_gate || rows == StoredRows::expert_up ||
         rows == StoredRows::expert_down;
}

// The first row and the number of rows; of an expert, those of expert 0.
std::pair<std::int64_t, std::int64_t> rows_of(StoredRows rows, const TransformerShape& shape,
                                              const Shape& global) {
  const ExpertsShape& experts = shape.experts;
  const std::int64_t queries = shape.heads * shape.head_dim();
  const std::int64_t keys = shape.groups * shape.head_dim();
  switch (rows) {
    case StoredRows::queries:
      return {0, queries};
    case StoredRows::keys:
      return {queries, keys};
    case StoredRows::values:
      return {queries + keys, keys};
    case StoredRows::gate:
      return {0, shape.ffn};
    case StoredRows::up:
      return {shape.ffn, shape.ffn};
    case StoredRows::shared_gate:
      return {0, experts.shared_ffn};
    case StoredRows::shared_up:
      return {experts.shared_ffn, experts.shared_ffn};
    case StoredRows::expert_gate:
      return {0, experts.ffn};
    case StoredRows::expert_up:
      return {experts.ffn, experts.ffn};
    case StoredRows::expert_down:
      return {0, shape.hidden};
    case StoredRows::all:
      break;
  }
  return {0, global.matrix_rows()};
}

std::vector<std::int64_t> extents(const Shape& shape) {
  std::vector<std::int64_t> list;
  for (int i = 0; i < shape.rank(); ++i) list.push_back(shape[i]);
  return list;
}

std::int64_t rotary_heads(StoredRows rows, const ModelConfig& model) {
  if (rows == StoredRows::queries) return model.num_attention_heads;
  return rows == StoredRows::keys ? model.num_query_groups : 0;
}

}  // namespace

std::vector<HuggingFaceTensor> TabledFormats::hugging_face(const TransformerShape& shape,
                                                           const std::string& name,
                                                           const Shape& global) const {
  std::string pattern = name, layer;
  if (name.starts_with("layers.")) {
    const LayerName parsed = parse_layer_name(name);
    layer = std::to_string(parsed.index);
    pattern = "layers.*." + parsed.rest;
  }
  std::vector<HuggingFaceTensor> found;
  for (const StoredTensor& tensor : tables_.tensors) {
    if (tensor.ours != pattern) continue;
    for (std::int64_t i = 0; tensor.of_further_layers && i < shape.mtp_layers; ++i) {
      const std::string index = std::to_string(shape.layers + i);
      found.push_back({.name = named(tensor.hugging_face, index),
                       .rows = global.matrix_rows(),
                       .repeats = true});
    }
    if (tensor.of_further_layers) continue;
    const auto [begin, rows] = rows_of(tensor.rows, shape, global);
    const std::int64_t copies = is_of_expert(tensor.rows) ? shape.experts.router.experts : 1;
    for (std::int64_t i = 0; i < copies; ++i) {
      const std::int64_t row = begin + i * (global.matrix_rows() / copies);
      HuggingFaceTensor& one = found.emplace_back(
          HuggingFaceTensor{named(tensor.hugging_face, layer, i), row, rows, tensor.transposed});
      if (tensor.rows == StoredRows::all && global.rank() > 2) one.shape = extents(global);
      if (!tensor.also.empty()) one.others.push_back({named(tensor.also, layer, i)});
      if (!tensor.fused.empty()) {
        one.others.push_back({named(tensor.fused, layer), row, extents(global)});
      }
    }
  }
  if (found.empty()) {
    throw Error(fmt::format("{}: no Hugging Face name for parameter {}", tables_.model_type, name));
  }
  return found;
}

HuggingFaceConfig TabledFormats::read(std::string_view text) const {
  return HuggingFaceConfig(text, tables_.model_type, tables_.classes, tables_.keys);
}

std::string TabledFormats::hugging_face_config(const Config& config) const {
  return tables_.write_config(config.model, dtype_of(config.precision.dtype));
}

std::string TabledFormats::model_config(std::string_view text) const {
  HuggingFaceConfig read_keys = read(text);
  return tables_.read_config(read_keys);
}

std::string TabledFormats::kept_config(std::string_view text, bool conversion) const {
  return read(text).kept(conversion);
}

std::vector<std::string> TabledFormats::unread_keys(std::string_view text) const {
  return read(text).unread();
}

std::optional<GgufForm> TabledFormats::gguf(const Config& config) const {
  const std::string_view name =
      tables_.gguf_architecture.empty() ? tables_.model_type : tables_.gguf_architecture;
  GgufForm form{.architecture = std::string(name)};
  tables_.gguf_keys(config.model, form);
  for (const StoredTensor& tensor : tables_.tensors) {
    const std::int64_t copies = is_of_expert(tensor.rows) ? config.model.moe.num_experts : 1;
    for (std::int64_t i = 0; i < copies; ++i) {
      const std::string_view other = tensor.gguf_other_columns;
      const std::string theirs = named(tensor.hugging_face, "*", i);
      const GgufColumns columns{0, other.empty() ? 1 : 2, tensor.inputs_first};
      form.names.push_back({theirs, std::string(tensor.gguf),
                            tables_.gguf_interleaves ? rotary_heads(tensor.rows, config.model) : 0,
                            columns});
      if (!other.empty()) {
        form.names.push_back(
            {theirs, std::string(other), 0, {1, columns.step, columns.transposed}});
      }
    }
  }
  return form;
}

std::int64_t TabledFormats::further_layers(std::string_view text) const {
  if (tables_.further_layers == nullptr) return 0;
  HuggingFaceConfig read_keys = read(text);
  return tables_.further_layers(read_keys);
}

std::vector<std::string> TabledFormats::buffers(std::int64_t layer) const {
  std::vector<std::string> names;
  for (const std::string_view pattern : tables_.buffers) {
    names.push_back(named(pattern, std::to_string(layer)));
  }
  return names;
}

}  // namespace trident
