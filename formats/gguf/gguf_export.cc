#include "formats/gguf/gguf_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/utf8.h"
#include "engine/setup/text_setup.h"
#include "formats/gguf/gguf_file.h"
#include "formats/gguf/gguf_vocabulary.h"
#include "formats/hugging_face/hugging_face_extras.h"
#include "formats/hugging_face/key_mapping.h"
#include "formats/hugging_face/model_directory.h"
#include "formats/hugging_face/safetensors.h"
#include "formats/hugging_face/weight_rows.h"
#include "formats/hugging_face/whole_weights.h"
#include "models/layer_name.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPortion = 4 << 20;  // elements that are read at a time, but at least a row

// Source rows, appended to the tensor in list order.
struct Source {
  std::size_t tensor = 0;  // its index
  WeightRows rows;
  std::int64_t rotary_heads = 0;  // GgufForm::Name
  GgufColumns columns = {};
};

// The tensors that a Hugging Face tensor becomes, by their names.
std::vector<std::pair<std::string, const GgufForm::Name*>> find(const GgufForm& form,
                                                                const std::string& name) {
  std::vector<std::pair<std::string, const GgufForm::Name*>> found;
  for (const GgufForm::Name& one : form.names) {
    const auto to = mapped_name(name, one.hugging_face, one.gguf);
    // A family's table may name a tensor that the table it builds on has, too.
    const auto is_same = [&](const auto& other) { return other.first == *to; };
    if (to && std::ranges::none_of(found, is_same)) found.emplace_back(*to, &one);
  }
  return found;
}

// Whether a parameter belongs to a layer behind the model's, which predicts further tokens.
bool is_of_further_layer(const std::string& name, const ModelConfig& model) {
  return name.starts_with("layers.") && parse_layer_name(name).index >= model.num_layers;
}

std::vector<std::int64_t> shape_of(const WholeWeight& weight, const HuggingFaceTensor& part,
                                   const std::string& name, const GgufColumns& columns) {
  if (!columns.is_all()) {
    const std::int64_t taken = weight.shape.matrix_columns() / columns.step;
    if (!columns.transposed) return {part.rows, taken};
    return {weight.shape[0], taken, part.rows / weight.shape[0]};
  }
  std::vector<std::int64_t> shape{part.rows};
  if (weight.shape.rank() > 1) shape.push_back(weight.shape.matrix_columns());
  if (weight.shape.rank() > 2) shape.insert(shape.begin(), 1);  // an expert's
  if (name.ends_with("_inp_shexp.weight")) shape = {shape[1]};  // a vector there
  return shape;
}

GgufType stored_as(const std::string& name, const std::vector<std::int64_t>& shape,
                   GgufType wanted) {
  // Routers are F32 as in llama.cpp's own files.
  if (shape.size() == 1 || name == "position_embd.weight" ||
      name.ends_with("ffn_gate_inp.weight") || name.ends_with(".bias")) {
    return GgufType::f32;
  }
  return fits(wanted, shape.back()) ? wanted : GgufType::f16;
}

// In transformers the first half of each head's rows precedes the second half. Interleaves the
// halves, because llama.cpp rotates neighbouring rows.
void pair_rows(std::vector<float>& values, std::int64_t columns, std::int64_t head_rows) {
  std::vector<float> head(static_cast<std::size_t>(head_rows * columns));
  for (auto begin = values.begin(); begin != values.end(); begin += std::ssize(head)) {
    std::copy_n(begin, head.size(), head.begin());
    for (std::int64_t row = 0; row < head_rows; ++row) {
      const std::int64_t from = row % 2 * (head_rows / 2) + row / 2;
      std::copy_n(head.begin() + from * columns, columns, begin + row * columns);
    }
  }
}

// Some columns of rows of `columns` each; of a transposed matrix they become rows.
std::vector<float> taken(const std::vector<float>& values, std::int64_t columns,
                         const GgufColumns& taken) {
  const std::int64_t rows = std::ssize(values) / columns, count = columns / taken.step;
  std::vector<float> some(static_cast<std::size_t>(rows * count));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < count; ++i) {
      some[static_cast<std::size_t>(taken.transposed ? i * rows + row : row * count + i)] =
          values[static_cast<std::size_t>(row * columns + taken.first + i * taken.step)];
    }
  }
  return some;
}

void copy_tensor(const Source& source, const GgufTensor& tensor, std::size_t index,
                 GgufWriter& writer) {
  const WeightRows& rows = source.rows;
  const std::int64_t rotary_heads = source.rotary_heads;
  const GgufColumns& columns = source.columns;
  const TensorSlice slice = rows.slice();
  const std::int64_t head_rows = rotary_heads > 0 ? slice.rows / rotary_heads : 1;
  const bool whole = rows.transposed() || tensor.shape.size() == 1;
  const std::int64_t step =
      columns.transposed ? slice.rows / tensor.shape[0]  // an expert
      : whole            ? slice.rows
              : std::max<std::int64_t>(kPortion / slice.columns / head_rows, 1) * head_rows;
  std::vector<std::byte> written;
  for (std::int64_t first = 0; first < slice.rows; first += step) {
    const std::int64_t begin = slice.row + first, count = std::min(step, slice.rows - first);
    std::vector<float> values = rows.read(begin, begin + count);
    if (rotary_heads > 0) pair_rows(values, slice.columns, head_rows);
    if (!columns.is_all()) values = taken(values, slice.columns, columns);
    written.resize(values.size() / static_cast<std::size_t>(tensor.row()) * tensor.row_bytes());
    try {
      to_gguf(values, tensor.type, written);
    } catch (const Error& error) {
      throw Error(
          fmt::format("{}: tensor \"{}\": {}", rows.directory(), rows.entry().name, error.what()));
    }
    writer.append(index, written);
  }
}

// general.file_type: the type of most of the tensors.
std::uint32_t file_type(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q8_0:
      return 7;
    case GgufType::bf16:
      return 32;
  }
  return 0;
}

GgufType wanted_type(const std::string& type, const std::string& dtype) {
  if (type == "f16" || (type == "auto" && dtype == "fp16")) return GgufType::f16;
  if (type == "bf16" || (type == "auto" && dtype == "bf16")) return GgufType::bf16;
  return type == "q8_0" ? GgufType::q8_0 : GgufType::f32;
}

// The file that `to` names, directly or by a link. Throws RequestError if it can't be written.
std::string target_of(const std::string& to, bool overwrite) {
  std::error_code none;
  const bool there = fs::exists(fs::symlink_status(to, none));
  if (there && !fs::is_regular_file(to, none)) {
    throw RequestError(to + ": is there already and is not a regular file");
  }
  if (there && !overwrite) {
    throw RequestError(to +
                       ": is there already; name another file, or replace it with --overwrite");
  }
  const fs::path folder = fs::path(to).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, none)) {
    throw RequestError(fmt::format("{}: there is no directory {}", to, folder.string()));
  }
  const std::string target = fs::is_symlink(to, none) ? fs::canonical(to).string() : to;
  try {
    AtomicFile writable(target);
  } catch (const Error& error) {
    throw RequestError(error.what());
  }
  return target;
}

std::string chat_template(const HuggingFaceExtras& extras) {
  const auto text_of = [&](const char* name) {
    const auto found = extras.files.find(name);
    return found == extras.files.end() ? std::string() : found->second;
  };
  if (std::string text = text_of("chat_template.jinja"); !text.empty()) return text;
  const nlohmann::json config = json_or_null(text_of("tokenizer_config.json"));
  if (!config.is_object() || !config.contains("chat_template")) return "";
  const nlohmann::json& found = config["chat_template"];
  if (found.is_string()) return found.get<std::string>();
  if (!found.is_array()) return "";
  for (const nlohmann::json& one : found) {  // several templates, by name
    const bool usual = one.is_object() && one.value("name", nlohmann::json()) == "default";
    if (usual && one.contains("template") && one["template"].is_string()) {
      return one["template"].get<std::string>();
    }
  }
  return "";
}

GgufVocabulary vocabulary_of(const std::string& directory, const HuggingFaceExtras& extras,
                             std::int64_t entries) {
  const std::string path = directory + "/tokenizer.json";
  const nlohmann::json config = json_or_null(extras.config);
  std::optional<std::int32_t> begin;
  if (config.contains("bos_token_id")) begin = token_id(config["bos_token_id"]);
  const auto bytes = [&] {
    return gguf_bytes(entries, begin, end_tokens(directory, nullptr, true));
  };
  const auto file = extras.files.find("tokenizer.json");
  if (file == extras.files.end()) {
    if (entries == 256) return bytes();
    return {.notes = {path + ": there is no such file; the GGUF file takes ids only"}};
  }
  const std::string& text = file->second;
  if (text == byte_tokenizer()) return bytes();
  std::optional<Tokenizer> tokenizer;
  try {
    tokenizer.emplace(text, path);
  } catch (const RequestError& error) {
    return {.notes = {fmt::format("{}; the GGUF file takes ids only", error.what())}};
  }
  return gguf_vocabulary(*tokenizer, text, path, entries, begin,
                         end_tokens(directory, &*tokenizer, true));
}

GgufKeys keys_of(const ModelConfig& model, const GgufForm& form, const std::string& name,
                 GgufType type, const std::string& chat, const GgufVocabulary& vocabulary) {
  GgufKeys keys;
  keys.set("general.architecture", form.architecture);
  keys.set("general.type", "model");
  keys.set("general.name", name);
  keys.set("general.file_type", file_type(type));
  if (type == GgufType::q8_0) keys.set("general.quantization_version", std::uint32_t{2});
  const std::string prefix = form.architecture + ".";
  keys.set(prefix + "vocab_size", static_cast<std::uint32_t>(model.vocab_size));
  for (const auto& [key, value] : form.sizes) {
    keys.set(prefix + key, static_cast<std::uint32_t>(value));
  }
  for (const auto& [key, value] : form.numbers) keys.set(prefix + key, static_cast<float>(value));
  for (const auto& [key, value] : form.words) keys.set(prefix + key, value);
  for (const auto& [key, value] : form.flags) keys.set(prefix + key, value);
  vocabulary.write(keys);
  if (!chat.empty() && vocabulary.model != "none") keys.set("tokenizer.chat_template", chat);
  return keys;
}

}  // namespace

std::vector<std::string> export_gguf(const ArchitectureSet& architectures, const std::string& from,
                                     const std::string& to, const std::string& type,
                                     bool overwrite) {
  const Config config = config_of_directory(architectures, from, true);
  const Architecture& architecture = *architectures.at(config.model.architecture);
  const std::optional<GgufForm> form = architecture.formats().gguf(config);
  if (!form) {
    throw RequestError(fmt::format("{}: GGUF has no form for the architecture \"{}\"", to,
                                   config.model.architecture));
  }
  const std::string path = target_of(to, overwrite);
  const HuggingFaceExtras extras = read_extras(from, architecture.formats(), true);
  const GgufVocabulary vocabulary = vocabulary_of(from, extras, config.model.vocab_size);
  const SafetensorsSet set(from);
  const GgufType wanted = wanted_type(type, config.precision.dtype);
  std::vector<GgufTensor> tensors;
  std::vector<Source> sources;
  for (const WholeWeight& weight : whole_weights(architecture, architecture.shape(config))) {
    if (is_of_further_layer(weight.name, config.model)) continue;
    for (const HuggingFaceTensor& part : weight.tensors) {
      if (part.repeats) continue;
      const auto found = find(*form, part.name);
      if (found.empty()) {
        throw Error(fmt::format("{}: GGUF has no name for \"{}\"", to, part.name));
      }
      for (const auto& [renamed, entry] : found) {
        const auto shape = shape_of(weight, part, renamed, entry->columns);
        if (!tensors.empty() && tensors.back().name == renamed) {  // of the next expert
          ++tensors.back().shape[0];
        } else {
          tensors.push_back({renamed, shape, stored_as(renamed, shape, wanted)});
        }
        sources.push_back({tensors.size() - 1,
                           {set, part, weight.shape, false},
                           entry->rotary_heads,
                           entry->columns});
      }
    }
  }
  const std::vector<float>& factors = form->rope_factors;
  if (!factors.empty()) {
    tensors.push_back({"rope_freqs.weight", {std::ssize(factors)}, GgufType::f32});
  }
  std::error_code none;
  const fs::path whole_path = fs::weakly_canonical(from, none);
  const std::string name = replace_invalid_utf8(
      (whole_path.has_filename() ? whole_path : whole_path.parent_path()).filename().string());
  const auto narrow = [&](const GgufTensor& tensor) {
    return wanted == GgufType::q8_0 && tensor.type == GgufType::f16;
  };
  const auto others = std::ranges::count_if(tensors, narrow);
  const bool some = std::ranges::find(tensors, wanted, &GgufTensor::type) != tensors.end();
  std::vector<std::string> notes = vocabulary.notes;
  notes.insert(notes.end(), form->notes.begin(), form->notes.end());
  const std::string unread = notes_of(from, architecture.formats(), config.model.mtp_num_layers);
  if (!unread.empty()) notes.push_back(unread);
  if (config.model.mtp_num_layers > 0) {
    notes.push_back("the layers that predict further tokens are left out");
  }
  if (others > 0) {
    notes.push_back(
        fmt::format("{} matrices are stored as f16: 32 doesn't divide their rows", others));
  }
  GgufWriter writer(path,
                    keys_of(config.model, *form, name, some ? wanted : GgufType::f16,
                            chat_template(extras), vocabulary),
                    tensors);
  for (const Source& source : sources) {
    copy_tensor(source, tensors[source.tensor], source.tensor, writer);
  }
  if (!factors.empty()) {
    writer.append(tensors.size() - 1, std::as_bytes(std::span(factors)));
  }
  writer.finish(overwrite);
  return notes;
}

}  // namespace trident
