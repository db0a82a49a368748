#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/bytes.h"
#include "core/error.h"
#include "core/json.h"
#include "training/hugging_face/safetensors.h"

namespace trident {
namespace {

std::int64_t rows_of(const TensorDeclaration& tensor) {
  return tensor.shape.empty() ? 1 : tensor.shape[0];
}

}  // namespace

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

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     std::vector<TensorDeclaration> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  std::ranges::stable_sort(tensors, std::ranges::greater{},
                           [](const auto& tensor) { return size_of(tensor.dtype); });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  // ordered_json looks a key up in linear time; a set finds duplicates instead.
  auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
  std::set<std::string_view> names{"__metadata__"};
  if (!metadata.empty()) members.emplace_back("__metadata__", metadata);
  std::uint64_t offset = 0;
  for (const auto& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      throw Error(fmt::format("{}: tensor \"{}\" is declared twice", path, tensor.name));
    }
    const std::uint64_t end = offset + tensor.bytes();
    members.emplace_back(tensor.name,
                         nlohmann::ordered_json{{"dtype", safetensors_name(tensor.dtype)},
                                                {"shape", tensor.shape},
                                                {"data_offsets", {offset, end}}});
    offset = end;
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data is aligned
  std::byte length[8];
  store_little_endian<std::uint64_t>(text.size(), length);
  file_.write(length);
  file_.write(text);

  offset = 8 + text.size();
  for (auto& tensor : tensors) {
    const std::uint64_t bytes = tensor.bytes();
    const std::string name = tensor.name;
    targets_.emplace(name, Target{std::move(tensor), offset, {}});
    offset += bytes;
  }
}

void SafetensorsWriter::claim(Target& target, std::int64_t first_row, std::int64_t rows) {
  if (rows == 0) return;
  const std::int64_t end = first_row + rows;
  const std::lock_guard lock(mutex_);
  auto& written = target.written;
  auto next = written.lower_bound(first_row);
  if ((next != written.end() && next->first < end) ||
      (next != written.begin() && std::prev(next)->second > first_row)) {
    throw Error(fmt::format("{}: tensor \"{}\": rows {} to {} are written twice", file_.path(),
                            target.tensor.name, first_row, end));
  }
  std::int64_t run_end = end;
  if (next != written.end() && next->first == end) {
    run_end = next->second;
    next = written.erase(next);
  }
  if (next != written.begin() && std::prev(next)->second == first_row) {
    std::prev(next)->second = run_end;
  } else {
    written.emplace(first_row, run_end);
  }
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  const auto it = targets_.find(name);
  write_rows(name, 0, it == targets_.end() ? 0 : rows_of(it->second.tensor), bytes);
}

void SafetensorsWriter::write_rows(std::string_view name, std::int64_t first_row, std::int64_t rows,
                                   std::span<const std::byte> bytes) {
  const auto it = targets_.find(name);
  if (it == targets_.end()) {
    throw Error(fmt::format("{}: tensor \"{}\" was not declared", file_.path(), name));
  }
  Target& target = it->second;
  const std::int64_t all_rows = rows_of(target.tensor);
  const std::uint64_t row_bytes =
      all_rows == 0 ? 0 : target.tensor.bytes() / static_cast<std::uint64_t>(all_rows);
  if (first_row < 0 || rows < 0 || first_row > all_rows - rows ||
      bytes.size() != row_bytes * static_cast<std::uint64_t>(rows)) {
    throw Error(fmt::format(
        "{}: tensor \"{}\" has {} rows of {} bytes; {} bytes were given for rows {} to {}",
        file_.path(), name, all_rows, row_bytes, bytes.size(), first_row, first_row + rows));
  }
  claim(target, first_row, rows);
  file_.write_at(target.offset + row_bytes * static_cast<std::uint64_t>(first_row), bytes);
}

void SafetensorsWriter::require_complete() const {
  for (const auto& [name, target] : targets_) {
    if (target.tensor.bytes() == 0) continue;
    const auto& written = target.written;
    const std::int64_t missing =
        written.empty() || written.begin()->first != 0 ? 0 : written.begin()->second;
    if (missing != rows_of(target.tensor)) {
      throw Error(fmt::format("{}: tensor \"{}\": row {} of {} was never written", file_.path(),
                              name, missing, rows_of(target.tensor)));
    }
  }
}

void SafetensorsWriter::finish() {
  require_complete();
  file_.commit();
}

SafetensorsSetWriter::SafetensorsSetWriter(const std::string& directory,
                                           const std::vector<TensorDeclaration>& tensors,
                                           std::uint64_t max_shard_bytes,
                                           const std::map<std::string, std::string>& metadata)
    : directory_(directory) {
  // transformers refuses a file whose metadata doesn't name a format.
  std::map<std::string, std::string> named = metadata;
  named.emplace("format", "pt");
  std::vector<std::vector<TensorDeclaration>> parts(1);
  std::uint64_t part_bytes = 0;
  for (const auto& tensor : tensors) {
    if (!parts.back().empty() && part_bytes + tensor.bytes() > max_shard_bytes) {
      parts.emplace_back();
      part_bytes = 0;
    }
    part_bytes += tensor.bytes();
    total_bytes_ += tensor.bytes();
    if (!shard_of_.emplace(tensor.name, parts.size() - 1).second) {
      throw Error(fmt::format("{}: tensor \"{}\" is declared twice", directory, tensor.name));
    }
    parts.back().push_back(tensor);
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    names_.push_back(parts.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size()));
    shards_.push_back(std::make_unique<SafetensorsWriter>(
        (std::filesystem::path(directory) / names_.back()).string(), std::move(parts[i]), named));
  }
}

SafetensorsWriter& SafetensorsSetWriter::shard_of(std::string_view name) {
  const auto it = shard_of_.find(name);
  if (it == shard_of_.end()) {
    throw Error(fmt::format("{}: tensor \"{}\" was not declared", directory_, name));
  }
  return *shards_[it->second];
}

void SafetensorsSetWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  shard_of(name).write(name, bytes);
}

void SafetensorsSetWriter::write_rows(std::string_view name, std::int64_t first_row,
                                      std::int64_t rows, std::span<const std::byte> bytes) {
  shard_of(name).write_rows(name, first_row, rows, bytes);
}

void SafetensorsSetWriter::finish() {
  for (const auto& shard : shards_) shard->require_complete();
  for (const auto& shard : shards_) shard->finish();
  if (shards_.size() == 1) return;
  nlohmann::ordered_json document;
  document["metadata"]["total_size"] = total_bytes_;
  nlohmann::json weight_map = nlohmann::json::object();
  for (const auto& [name, shard] : shard_of_) weight_map[name] = names_[shard];
  document["weight_map"] = weight_map;
  write_file_atomic((std::filesystem::path(directory_) / "model.safetensors.index.json").string(),
                    json_text(document, 2) + "\n");
}

}  // namespace trident
