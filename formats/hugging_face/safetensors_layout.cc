#include "formats/hugging_face/safetensors_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files/bytes.h"
#include "base/files/json.h"
#include "formats/hugging_face/safetensors.h"

namespace trident {

std::int64_t stored_rows(const std::vector<std::int64_t>& shape) {
  std::int64_t rows = shape.empty() ? 1 : shape[0];
  for (std::size_t i = 1; i + 1 < shape.size(); ++i) {
    if (__builtin_mul_overflow(rows, shape[i], &rows)) return INT64_MAX;
  }
  return rows;
}

std::uint64_t TensorDeclaration::bytes() const {
  std::uint64_t count = size_of(dtype);
  bool empty = false;
  for (const std::int64_t n : shape) {
    if (n < 0) throw Error(fmt::format("tensor \"{}\": dimension {} is negative", name, n));
    if (n == 0) empty = true;
    if (n != 0 && __builtin_mul_overflow(count, static_cast<std::uint64_t>(n), &count)) {
      throw Error(fmt::format("tensor \"{}\": its bytes overflow 64 bits", name));
    }
  }
  return empty ? 0 : count;
}

std::vector<TensorDeclaration> aligned(std::vector<TensorDeclaration> tensors) {
  std::ranges::stable_sort(tensors, std::ranges::greater{},
                           [](const auto& tensor) { return size_of(tensor.dtype); });
  return tensors;
}

SafetensorsLayout lay_out(std::vector<TensorDeclaration> tensors,
                          const std::map<std::string, std::string>& metadata,
                          const std::string& path) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  // ordered_json looks a key up in linear time, so a set finds duplicates.
  auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
  std::set<std::string_view> names{"__metadata__"};
  if (!metadata.empty()) members.emplace_back("__metadata__", metadata);
  SafetensorsLayout layout{.tensors = std::move(tensors)};
  std::uint64_t offset = 0;
  for (const TensorDeclaration& tensor : layout.tensors) {
    if (!names.insert(tensor.name).second) {
      throw Error(fmt::format("{}: tensor \"{}\" is declared twice", path, tensor.name));
    }
    const std::uint64_t end = offset + tensor.bytes();
    members.emplace_back(tensor.name,
                         nlohmann::ordered_json{{"dtype", safetensors_name(tensor.dtype)},
                                                {"shape", tensor.shape},
                                                {"data_offsets", {offset, end}}});
    layout.offsets.push_back(offset);
    offset = end;
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data
  std::byte length[8];
  store_little_endian<std::uint64_t>(text.size(), length);
  layout.head.assign(reinterpret_cast<const char*>(length), sizeof length);
  layout.head += text;
  for (std::uint64_t& place : layout.offsets) place += layout.head.size();
  layout.bytes = layout.head.size() + offset;
  return layout;
}

SafetensorsSetLayout lay_out_set(const std::vector<TensorDeclaration>& tensors,
                                 std::uint64_t max_shard_bytes,
                                 const std::map<std::string, std::string>& metadata,
                                 const std::string& directory) {
  // transformers refuses a file whose metadata doesn't name a format.
  std::map<std::string, std::string> named = metadata;
  named.emplace("format", "pt");
  std::vector<std::vector<TensorDeclaration>> parts(1);
  std::uint64_t part_bytes = 0, total_bytes = 0;
  for (const TensorDeclaration& tensor : tensors) {
    if (!parts.back().empty() && part_bytes + tensor.bytes() > max_shard_bytes) {
      parts.emplace_back();
      part_bytes = 0;
    }
    part_bytes += tensor.bytes();
    total_bytes += tensor.bytes();
    parts.back().push_back(tensor);
  }
  SafetensorsSetLayout set;
  nlohmann::json weight_map = nlohmann::json::object();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name =
        parts.size() == 1 ? "model.safetensors"
                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    set.files.push_back({name, lay_out(aligned(std::move(parts[i])), named, directory)});
    const SafetensorsLayout& layout = set.files.back().layout;
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
      const std::string& tensor = layout.tensors[t].name;
      if (!set.places.emplace(tensor, SafetensorsSetLayout::Place{i, layout.offsets[t]}).second) {
        throw Error(fmt::format("{}: tensor \"{}\" is declared twice", directory, tensor));
      }
      weight_map[tensor] = name;
    }
  }
  if (set.files.size() == 1) return set;
  nlohmann::ordered_json document;
  document["metadata"]["total_size"] = total_bytes;
  document["weight_map"] = weight_map;
  set.index = json_text(document, 2) + "\n";
  return set;
}

}  // namespace trident
