#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "core/error.h"
#include "training/hugging_face/safetensors.h"

namespace trident {
namespace {

std::int64_t rows_of(const TensorDeclaration& tensor) {
  return tensor.shape.empty() ? 1 : tensor.shape[0];
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     std::vector<TensorDeclaration> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : SafetensorsWriter(path, lay_out(aligned(std::move(tensors)), metadata, path)) {}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const SafetensorsLayout& layout)
    : file_(path) {
  file_.write(layout.head);
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    targets_.emplace(layout.tensors[i].name, Target{layout.tensors[i], layout.offsets[i], {}});
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
    : directory_(directory), layout_(lay_out_set(tensors, max_shard_bytes, metadata, directory)) {
  for (const SafetensorsSetLayout::File& file : layout_.files) {
    shards_.push_back(std::make_unique<SafetensorsWriter>(
        (std::filesystem::path(directory) / file.name).string(), file.layout));
  }
}

SafetensorsWriter& SafetensorsSetWriter::shard_of(std::string_view name) {
  const auto it = layout_.places.find(name);
  if (it == layout_.places.end()) {
    throw Error(fmt::format("{}: tensor \"{}\" was not declared", directory_, name));
  }
  return *shards_[it->second.file];
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
  if (layout_.index.empty()) return;
  write_file_atomic((std::filesystem::path(directory_) / "model.safetensors.index.json").string(),
                    layout_.index);
}

}  // namespace trident
