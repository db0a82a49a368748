#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "formats/hugging_face/safetensors.h"

namespace trident {

std::int64_t SafetensorsWriter::Target::rows() const {
  return stored_rows(tensor.shape);
}

std::uint64_t SafetensorsWriter::Target::row_bytes() const {
  return rows() == 0 ? 0 : tensor.bytes() / static_cast<std::uint64_t>(rows());
}

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     std::vector<TensorDeclaration> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : SafetensorsWriter(path, lay_out(aligned(std::move(tensors)), metadata, path)) {}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const SafetensorsLayout& layout)
    : file_(path) {
  file_.write(layout.head);
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    targets_.push_back({layout.tensors[i], layout.offsets[i], {}});
    by_name_.emplace(layout.tensors[i].name, i);
  }
}

SafetensorsWriter::Target& SafetensorsWriter::target(std::string_view name) {
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    throw Error(fmt::format("{}: tensor \"{}\" was not declared", file_.path(), name));
  }
  return targets_[it->second];
}

void SafetensorsWriter::claim(Target& target, std::uint64_t begin, std::uint64_t end) {
  if (begin == end) return;
  const std::lock_guard lock(mutex_);
  auto& written = target.written;
  auto next = written.lower_bound(begin);
  if ((next != written.end() && next->first < end) ||
      (next != written.begin() && std::prev(next)->second > begin)) {
    const std::uint64_t row = target.row_bytes();
    throw Error(fmt::format("{}: tensor \"{}\": rows {} to {} are written twice", file_.path(),
                            target.tensor.name, begin / row, (end + row - 1) / row));
  }
  std::uint64_t run_end = end;
  if (next != written.end() && next->first == end) {
    run_end = next->second;
    next = written.erase(next);
  }
  if (next != written.begin() && std::prev(next)->second == begin) {
    std::prev(next)->second = run_end;
  } else {
    written.emplace(begin, run_end);
  }
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  write_rows(name, 0, target(name).rows(), bytes);
}

void SafetensorsWriter::write_rows(std::string_view name, std::int64_t first_row, std::int64_t rows,
                                   std::span<const std::byte> bytes) {
  const Target& to = target(name);
  const std::uint64_t row_bytes = to.row_bytes();
  if (first_row < 0 || rows < 0 || first_row > to.rows() - rows ||
      bytes.size() != row_bytes * static_cast<std::uint64_t>(rows)) {
    throw Error(fmt::format(
        "{}: tensor \"{}\" has {} rows of {} bytes; {} bytes were given for rows {} to {}",
        file_.path(), name, to.rows(), row_bytes, bytes.size(), first_row, first_row + rows));
  }
  write_at(to.offset + row_bytes * static_cast<std::uint64_t>(first_row), bytes);
}

void SafetensorsWriter::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto after = std::ranges::upper_bound(targets_, offset, {}, &Target::offset);
  Target* to = after == targets_.begin() ? nullptr : &*std::prev(after);
  if (to == nullptr || to->tensor.bytes() < bytes.size() ||
      offset - to->offset > to->tensor.bytes() - bytes.size()) {
    throw Error(fmt::format("{}: bytes {} to {} are not one tensor's", file_.path(), offset,
                            offset + bytes.size()));
  }
  claim(*to, offset - to->offset, offset - to->offset + bytes.size());
  file_.write_at(offset, bytes);
}

void SafetensorsWriter::require_complete() const {
  for (const Target& target : targets_) {
    const auto& written = target.written;
    const std::uint64_t whole =
        written.empty() || written.begin()->first != 0 ? 0 : written.begin()->second;
    if (whole == target.tensor.bytes()) continue;
    throw Error(fmt::format("{}: tensor \"{}\": row {} of {} was never written", file_.path(),
                            target.tensor.name, whole / target.row_bytes(), target.rows()));
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
    : SafetensorsSetWriter(directory, lay_out_set(tensors, max_shard_bytes, metadata, directory)) {}

SafetensorsSetWriter::SafetensorsSetWriter(const std::string& directory,
                                           SafetensorsSetLayout layout)
    : directory_(directory), layout_(std::move(layout)) {
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

void SafetensorsSetWriter::write_at(std::size_t file, std::uint64_t offset,
                                    std::span<const std::byte> bytes) {
  shards_.at(file)->write_at(offset, bytes);
}

void SafetensorsSetWriter::finish() {
  for (const auto& shard : shards_) shard->require_complete();
  for (const auto& shard : shards_) shard->finish();
  if (layout_.index.empty()) return;
  write_file_atomic((std::filesystem::path(directory_) / "model.safetensors.index.json").string(),
                    layout_.index);
}

}  // namespace trident
