#include "formats/hugging_face/hugging_face_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "formats/hugging_face/hugging_face.h"
#include "formats/hugging_face/model_directory.h"
#include "formats/hugging_face/weights_folder.h"

namespace trident {
namespace {

constexpr std::size_t kMaxProblems = 8;
constexpr std::uint64_t kMaxModelConfig = 4 << 20;  // bytes; a parsed list takes ten times more

// The name of a tensor in the directory of a bare model (without its language-model class), which
// lacks the first part of the name.
std::string bare_name(const std::string& name) {
  const std::size_t dot = name.find('.');
  // "lm_head.weight" has no such part.
  return dot == name.rfind('.') ? name : name.substr(dot + 1);
}

const SafetensorsEntry* find(const SafetensorsSet& set, const std::string& name) {
  const SafetensorsEntry* entry = set.find(name);
  return entry != nullptr ? entry : set.find(bare_name(name));
}

// Compares two tensors that a directory may hold twice. `why` says why they must be equal.
void require_same(const SafetensorsSet& set, const std::string& a, const std::string& b,
                  const std::string& why) {
  const SafetensorsEntry& first = set.at(a);
  const SafetensorsEntry& second = set.at(b);
  bool same = first.dtype_name == second.dtype_name && first.shape == second.shape;
  const std::uint64_t row =
      first.bytes() / static_cast<std::uint64_t>(std::max<std::int64_t>(1, first.rows()));
  const std::int64_t rows =
      std::max<std::int64_t>(1, static_cast<std::int64_t>((1 << 20) / std::max(row, 1ul)));
  std::vector<std::byte> x, y;
  for (std::int64_t at = 0; same && at < first.rows(); at += rows) {
    const std::int64_t count = std::min(rows, first.rows() - at);
    x.resize(static_cast<std::size_t>(count) * row);
    y.resize(x.size());
    set.read_rows(a, at, count, x);
    set.read_rows(b, at, count, y);
    same = x == y;
  }
  if (same) return;
  throw RequestError(
      fmt::format("{}: tensor {} differs from {}, but {}", set.file_of(b), b, a, why));
}

class TensorCheck {
 public:
  TensorCheck(const SafetensorsSet& set, const Architecture& architecture,
              const TransformerShape& shape, std::int64_t entries)
      : set_(set), architecture_(architecture), shape_(shape), entries_(entries) {}

  DType run() {
    const auto ends = build_chunks(architecture_, shape_, {}, {0}, {0});
    for (const auto& parameter : unique_parameters(ends)) take(*parameter);
    take_buffers(0);
    // Build one layer at a time: a config of a few bytes can ask for any number of layers.
    for (std::int64_t i = 0; i < shape_.layers; ++i) {
      const auto layer = architecture_.layer({}, shape_, static_cast<int>(i));
      for (const auto& parameter : with_buffers(*layer)) take(*parameter);
      take_buffers(i);
    }
    for (std::int64_t i = 0; i < shape_.mtp_layers; ++i) take_buffers(shape_.layers + i);
    finish();
    take_repeated();
    if (shape_.tied) take_tied_head();
    for (const SafetensorsEntry* entry : set_.tensors()) {
      if (taken_.contains(entry->name)) continue;
      if (!further_)
        further_ = architecture_.formats().further_layers(read_model_config(set_.directory()));
      if (is_of_further_layer(entry->name, shape_.layers + shape_.mtp_layers,
                              *further_ - shape_.mtp_layers)) {
        continue;
      }
      problem(
          fmt::format("{}: tensor {} belongs to no parameter of this model, which would "
                      "ignore it",
                      set_.file_of(entry->name), printable(entry->name)));
    }
    finish();
    return types_.size() == 1            ? *types_.begin()
           : types_.contains(DType::f64) ? DType::f64
                                         : DType::f32;
  }

 private:
  void take(const Parameter& parameter) {
    const Shape& global = parameter.spec().placement.global;
    const auto tensors = architecture_.formats().hugging_face(shape_, parameter.name(), global);
    for (const auto& tensor : tensors) {
      if (tensor.repeats) continue;
      try {
        const bool grown = entries_ > 0 && is_of_vocabulary(parameter.name());
        const SafetensorsEntry& entry = *checked_tensor(set_, tensor, global, grown).entry;
        if (grown && entry.rows() != entries_) {
          throw RequestError(fmt::format("{}: tensor {} has {} rows, config.json says {}",
                                         set_.file_of(entry.name), entry.name, entry.rows(),
                                         entries_));
        }
        taken_.insert(entry.name);
        if (!parameter.spec().keeps_fp32) types_.insert(*entry.dtype);
      } catch (const RequestError& error) {
        problem(error.what());
      }
    }
    for (const auto& tensor : tensors) {
      if (tensor.repeats) repeated_.emplace_back(tensors.front().name, tensor.name);
    }
  }
  void take_buffers(std::int64_t layer) {
    for (const std::string& name : architecture_.formats().buffers(layer)) {
      taken_.insert(name);
      taken_.insert(bare_name(name));
    }
  }
  void take_repeated() {
    for (const auto& [name, again] : repeated_) {
      const SafetensorsEntry* const first = find(set_, name);
      const SafetensorsEntry* const second = find(set_, again);
      if (second == nullptr) continue;
      taken_.insert(second->name);
      require_same(set_, first->name, second->name,
                   "the layers that predict further tokens share the model's tables");
    }
  }
  void take_tied_head() {
    const Shape global{shape_.vocabulary, shape_.hidden};
    const auto names = [&](const char* parameter) {
      return architecture_.formats().hugging_face(shape_, parameter, global);
    };
    const std::string table = names("embedding.weight").front().name;
    const SafetensorsEntry* one = find(set_, table);
    for (const HuggingFaceTensor& head : names("output.weight")) {
      const SafetensorsEntry* other = find(set_, head.name);
      if (one == nullptr || other == nullptr) continue;
      taken_.insert(other->name);
      require_same(set_, one->name, other->name, "config.json ties them: /tie_word_embeddings");
    }
  }
  void problem(std::string text) {
    problems_.push_back(std::move(text));
    if (problems_.size() == kMaxProblems) finish();
  }
  void finish() const {
    if (!problems_.empty()) throw RequestError(problems_);
  }

  const SafetensorsSet& set_;
  const Architecture& architecture_;
  const TransformerShape& shape_;
  std::int64_t entries_;
  std::unordered_set<std::string> taken_;
  std::vector<std::pair<std::string, std::string>> repeated_;  // names of the same rows
  std::set<DType> types_;
  std::optional<std::int64_t> further_;  // layers, once it is known
  std::vector<std::string> problems_;
};

}  // namespace

bool is_of_further_layer(std::string_view tensor, std::int64_t layers, std::int64_t further) {
  if (tensor.starts_with("model.")) tensor.remove_prefix(6);
  if (further <= 0 || !tensor.starts_with("layers.")) return false;
  std::int64_t layer = -1;
  const char* const end = tensor.data() + tensor.size();
  const auto [rest, error] = std::from_chars(tensor.data() + 7, end, layer);
  return error == std::errc() && rest != end && *rest == '.' && layer >= layers &&
         layer - layers < further;
}

std::int64_t further_layers_in(const SafetensorsSet& set, const FamilyFormats& family,
                               std::int64_t layers) {
  const std::int64_t most = family.further_layers(read_model_config(set.directory()));
  std::int64_t found = 0;
  for (const SafetensorsEntry* entry : set.tensors()) {
    while (is_of_further_layer(entry->name, layers + found, most - found)) ++found;
  }
  return found;
}

std::string model_keys(const FamilyFormats& family, const std::string& directory) {
  const std::string text = read_model_config(directory);
  try {
    return family.model_config(text);
  } catch (const RequestError& error) {
    throw error.at(directory + "/config.json: ");
  }
}

std::string read_model_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  std::error_code none;
  if (!std::filesystem::exists(path, none) && !none) {
    if (const std::string rest = unfinished_save(directory); !rest.empty()) {
      const auto old = left_of_old_set(directory);
      throw RequestError(fmt::format(
          "{}: there is no such file: a save was interrupted while it moved its files here; {}move "
          "the rest of them from {} as well, config.json last",
          path, old.empty() ? "" : fmt::format("remove {} here, ", fmt::join(old, ", ")), rest));
    }
    throw RequestError(
        fmt::format("{}: there is no such file; name a Hugging Face directory", path));
  }
  return read_file(path, kMaxModelConfig);
}

bool is_of_vocabulary(const std::string& parameter) {
  return parameter == "embedding.weight" || parameter == "output.weight";
}

std::vector<std::int64_t> stored_shape(const HuggingFaceTensor& tensor, const Shape& global) {
  if (!tensor.shape.empty()) return tensor.shape;
  std::vector<std::int64_t> shape{tensor.rows};
  if (global.rank() > 1) shape.push_back(global.matrix_columns());
  if (tensor.transposed) std::reverse(shape.begin(), shape.end());
  return shape;
}

FoundTensor checked_tensor(const SafetensorsSet& set, const HuggingFaceTensor& tensor,
                           const Shape& global, bool grown) {
  FoundTensor found{find(set, tensor.name)};
  std::vector<std::int64_t> expected = stored_shape(tensor, global);
  for (const HuggingFaceTensor::Place& other : tensor.others) {
    const SafetensorsEntry* const also = find(set, other.name);
    if (also == nullptr) continue;
    if (found.entry != nullptr) {
      throw RequestError(fmt::format("{}: tensors {} and {} hold the same weights; take one out",
                                     set.directory(), found.entry->name, also->name));
    }
    found = {also, other.row};
    if (!other.shape.empty()) expected = other.shape;
  }
  const SafetensorsEntry* const entry = found.entry;
  if (entry == nullptr) {
    throw RequestError(fmt::format("{}: tensor {} is missing", set.directory(), tensor.name));
  }
  const bool fewer = grown && !tensor.transposed && entry->shape.size() == expected.size() &&
                     entry->rows() < expected[0];
  if (fewer) expected[0] = entry->rows();
  if (entry->shape != expected) {
    throw RequestError(fmt::format("{}: tensor {} has the shape [{}], the config needs [{}]",
                                   set.file_of(entry->name), entry->name,
                                   fmt::join(entry->shape, ", "), fmt::join(expected, ", ")));
  }
  if (!entry->dtype || !is_floating(*entry->dtype)) {
    throw RequestError(fmt::format("{}: tensor {} has the dtype {}, need F64, F32, BF16 or F16",
                                   set.file_of(entry->name), entry->name, entry->dtype_name));
  }
  return found;
}

DType check_tensors(const SafetensorsSet& set, const Architecture& architecture,
                    const TransformerShape& shape, std::int64_t entries) {
  return TensorCheck(set, architecture, shape, entries).run();
}

namespace {

// The model keys that say how weights are trained, which a run may choose otherwise.
bool is_of_training(const std::string& key) {
  return key == "pad_token_id" || key == "moe/router_load_balancing_type" ||
         key == "moe/aux_loss_coeff";
}

// Adds a problem for each value of the weights that ours differs from. Kernels use fractions as
// fp32.
void compare_values(const std::string& key, const nlohmann::json& ours,
                    const nlohmann::json& theirs, const std::string& path,
                    std::vector<std::string>& problems) {
  if (is_of_training(key)) return;
  if (theirs.is_object() && ours.is_object()) {
    for (const auto& [inner, value] : theirs.items()) {
      compare_values(key + "/" + inner, ours.value(inner, nlohmann::json()), value, path, problems);
    }
    return;
  }
  const bool numbers = theirs.is_number() && ours.is_number();
  const bool same = numbers && (theirs.is_number_float() || ours.is_number_float())
                        ? theirs.get<float>() == ours.get<float>()
                        : theirs == ours;
  if (same) return;
  problems.push_back(fmt::format("config: /model/{}: {} differs from {} in {}; use that value", key,
                                 json_text(ours), json_text(theirs), path));
}

}  // namespace

std::int64_t check_hugging_face(const std::string& directory, const Config& config,
                                const Architecture& architecture) {
  const std::string path = directory + "/config.json";
  nlohmann::json theirs;
  try {
    if (const std::string saved = weights_directory(directory); saved != directory) {
      throw RequestError(fmt::format("{} is the folder of a run; name that of its weights, \"{}\"",
                                     printable(directory), printable(saved)));
    }
    theirs = parse_json(model_keys(architecture.formats(), directory), directory);
  } catch (const RequestError& error) {
    throw error.at("config: /checkpoint/load: ");
  }
  const auto ours = parse_json(config_to_json(config), "config").at("model");
  std::vector<std::string> problems;
  std::int64_t grown = 0;
  for (const auto& [key, value] : theirs.items()) {
    const nlohmann::json& own = ours.at(key);
    if (config.checkpoint.grow_vocabulary && key == "vocab_size" && value < own) {
      grown = value.get<std::int64_t>();
      continue;
    }
    compare_values(key, own, value, path, problems);
  }
  if (!problems.empty()) throw RequestError(problems);
  SafetensorsSet set(directory);
  set.rename(config.checkpoint.key_mapping);
  check_tensors(set, architecture, architecture.shape(config), grown);
  return grown;
}

}  // namespace trident
