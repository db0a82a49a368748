#include "checkpoint/checkpoint_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/files/bytes.h"
#include "base/files/crc64.h"
#include "base/printable.h"
#include "checkpoint/checkpoint_folder.h"

namespace trident {
namespace {

std::string file_in(const std::string& folder, const std::string& file) {
  return (std::filesystem::path(folder) / file).string();
}

constexpr std::size_t kUnshared = 2;  // blocks kept by a reader; each rank of a process has one

TensorSlice common(const TensorSlice& a, const TensorSlice& b) {
  TensorSlice slice{std::max(a.row, b.row), std::max(a.column, b.column), 0, 0};
  slice.rows = std::min(a.row + a.rows, b.row + b.rows) - slice.row;
  slice.columns = std::min(a.column + a.columns, b.column + b.columns) - slice.column;
  return slice;
}

// Copies consecutive elements to `line`, `step` bytes apart. `bytes` are those from byte `done` on.
// They may begin and end within an element, because blocks do.
void spread(std::span<const std::byte> bytes, std::uint64_t done, std::size_t element,
            std::byte* line, std::size_t step) {
  const auto put = [&](std::size_t count) {
    std::memcpy(line + done / element * step + done % element, bytes.data(), count);
    bytes = bytes.subspan(count);
    done += count;
  };
  if (done % element != 0) put(std::min<std::size_t>(element - done % element, bytes.size()));
  const auto put_all = [&]<std::size_t size>(std::integral_constant<std::size_t, size>) {
    if (element != size) return;
    std::byte* to = line + done / size * step;
    for (; bytes.size() >= size; bytes = bytes.subspan(size), done += size, to += step) {
      std::memcpy(to, bytes.data(), size);
    }
  };
  put_all(std::integral_constant<std::size_t, 2>{});
  put_all(std::integral_constant<std::size_t, 4>{});
  while (!bytes.empty()) put(std::min(element, bytes.size()));
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& folder)
    : CheckpointReader(folder, open_checkpoint(folder)) {}

CheckpointReader::CheckpointReader(const std::string& folder, Manifest manifest)
    : folder_(folder),
      manifest_(std::move(manifest)),
      blocks_(VerifiedBlocks::of(folder, manifest_)) {}

CheckpointReader::CheckpointReader(const std::string& folder, Manifest manifest,
                                   VerifiedBlocks::Locate locate)
    : folder_(folder),
      manifest_(std::move(manifest)),
      blocks_(std::make_shared<VerifiedBlocks>(manifest_.files, std::move(locate), kUnshared)) {}

const SavedTensor* CheckpointReader::find(const std::string& name) const {
  const auto it = manifest().tensors.find(name);
  return it == manifest().tensors.end() ? nullptr : &it->second;
}

std::span<const std::byte> CheckpointReader::at(const std::string& file, std::uint64_t offset,
                                                std::uint64_t most) {
  const std::uint64_t index = offset / checkpoint_block;
  if (block_ == nullptr || index != index_ || file != file_) {
    block_ = nullptr;  // frees its buffer for the next block
    block_ = blocks_->block(file, index);
    file_ = file;
    index_ = index;
  }
  const auto bytes = std::span(*block_).subspan(offset % checkpoint_block);
  return bytes.first(std::min<std::uint64_t>(bytes.size(), most));
}

const SafetensorsFile& CheckpointReader::tensors_of(const std::string& file) {
  std::unique_ptr<SafetensorsFile>& tensors = files_[file];
  if (tensors != nullptr) return *tensors;
  // Verify the blocks of the header before it is parsed.
  const std::uint64_t size = manifest().files.at(file).bytes;
  std::uint64_t end = 8;
  for (std::uint64_t offset = 0; offset < std::min(end, size);) {
    const auto bytes = at(file, offset, std::min(end, size) - offset);
    if (offset == 0 && bytes.size() == 8) {
      end += std::min(size, load_little_endian<std::uint64_t>(bytes.data()));
    }
    offset += bytes.size();
  }
  tensors = std::make_unique<SafetensorsFile>(blocks_->path(file));
  return *tensors;
}

std::string CheckpointReader::text(const std::string& file) {
  const auto saved = manifest().files.find(file);
  if (saved == manifest().files.end()) {
    throw RequestError(fmt::format("{}: {} doesn't list it", blocks_->path(file), manifest_name));
  }
  std::string text;
  while (text.size() < saved->second.bytes) {
    const auto bytes = at(file, text.size(), saved->second.bytes - text.size());
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return text;
}

const SafetensorsEntry& CheckpointReader::entry_of(const SavedTensor& tensor,
                                                   const SavedShard& shard) {
  const SafetensorsEntry& entry = tensors_of(shard.file).at(shard.tensor);
  std::vector<std::int64_t> shape{shard.slice.rows};
  if (tensor.shape.rank() > 1) shape.push_back(shard.slice.columns);
  if (shard.transposed) std::ranges::reverse(shape);
  // A shard that is all of a tensor of more than two dimensions may have all of them.
  std::vector<std::int64_t> whole;
  for (int i = 0; i < tensor.shape.rank(); ++i) whole.push_back(tensor.shape[i]);
  const bool is_whole = tensor.shape.rank() > 2 && !shard.transposed && entry.shape == whole &&
                        shard.slice.rows == tensor.shape.matrix_rows() &&
                        shard.slice.columns == tensor.shape.matrix_columns();
  if (entry.dtype == tensor.dtype && (entry.shape == shape || is_whole)) return entry;
  throw RequestError(fmt::format("{}: tensor \"{}\" has another type or shape than {} says",
                                 blocks_->path(shard.file), printable(shard.tensor),
                                 manifest_name));
}

std::vector<CheckpointReader::Part> CheckpointReader::parts_of(const std::string& name,
                                                               const TensorSlice& slice) {
  std::vector<Part> parts;
  const SavedTensor* tensor = find(name);
  if (tensor == nullptr) return parts;
  for (const SavedShard& shard : tensor->shards) {
    const TensorSlice meet = common(shard.slice, slice);
    if (meet.rows <= 0 || meet.columns <= 0) continue;
    const SafetensorsFile& file = tensors_of(shard.file);
    const SafetensorsEntry* entry = file.find(shard.tensor);
    parts.push_back({{shard.file, entry == nullptr ? 0 : file.offset_of(*entry)}, meet});
  }
  return parts;
}

void CheckpointReader::read(const std::string& name, const TensorSlice& slice, std::int64_t stride,
                            std::span<std::byte> out) {
  const SavedTensor* tensor = find(name);
  if (tensor == nullptr) {
    throw RequestError(
        fmt::format("{}: no tensor \"{}\"", file_in(folder_, manifest_name), printable(name)));
  }
  std::int64_t elements = 0;
  for (const SavedShard& shard : tensor->shards) {
    const TensorSlice meet = common(shard.slice, slice);
    if (meet.rows <= 0 || meet.columns <= 0) continue;
    read_shard(*tensor, shard, meet, slice, stride, out);
    elements += meet.rows * meet.columns;
  }
  if (elements == slice.rows * slice.columns) return;
  throw RequestError(
      fmt::format("{}: tensor \"{}\" has shape {}, asked for rows {} to {} and columns {} to {}",
                  file_in(folder_, manifest_name), printable(name), tensor->shape.to_string(),
                  slice.row, slice.row + slice.rows, slice.column, slice.column + slice.columns));
}

void CheckpointReader::read_shard(const SavedTensor& tensor, const SavedShard& shard,
                                  const TensorSlice& meet, const TensorSlice& slice,
                                  std::int64_t stride, std::span<std::byte> out) {
  const SafetensorsEntry& entry = entry_of(tensor, shard);
  const std::size_t element = size_of(tensor.dtype);
  // Lines of the file: rows, or columns if the file has the transposed tensor.
  const bool turned = shard.transposed;
  const std::int64_t first = turned ? meet.column - shard.slice.column : meet.row - shard.slice.row;
  const std::int64_t inside =
      turned ? meet.row - shard.slice.row : meet.column - shard.slice.column;
  const std::int64_t pitch = turned ? shard.slice.rows : shard.slice.columns;
  const std::int64_t lines = turned ? meet.columns : meet.rows;
  const std::int64_t length = turned ? meet.rows : meet.columns;
  const auto target = [&](std::int64_t line, std::int64_t i) {  // byte of `out`
    const std::int64_t row = meet.row - slice.row + (turned ? i : line);
    const std::int64_t column = meet.column - slice.column + (turned ? line : i);
    return &out[static_cast<std::size_t>(row * stride + column) * element];
  };
  // If complete lines are contiguous both in the file and in `out`, copy them as one line.
  const bool at_once = !turned && length == pitch && length == stride;
  const std::uint64_t begin = tensors_of(shard.file).offset_of(entry);
  for (std::int64_t line = 0; line < (at_once ? 1 : lines); ++line) {
    std::uint64_t offset =
        begin + static_cast<std::uint64_t>((first + line) * pitch + inside) * element;
    auto left = static_cast<std::uint64_t>(at_once ? lines * length : length) * element;
    std::uint64_t done = 0;
    while (left > 0) {
      const auto bytes = at(shard.file, offset, left);
      if (turned) {
        spread(bytes, done, element, target(line, 0), static_cast<std::size_t>(stride) * element);
      } else {
        std::memcpy(target(line, 0) + done, bytes.data(), bytes.size());
      }
      offset += bytes.size();
      done += bytes.size();
      left -= bytes.size();
    }
  }
}

std::vector<std::string> damages(const std::string& folder, const Manifest& manifest) {
  std::vector<std::string> list;
  for (const auto& [name, saved] : manifest.files) {
    try {
      VerifiedFile(file_in(folder, name), saved).verify_all();
    } catch (const RequestError& error) {  // an Error may pass; it is no damage
      list.emplace_back(error.what());
    }
  }
  // Check that the tensors are there as the manifest says.
  CheckpointReader reader(folder, manifest);
  for (const auto& [name, tensor] : manifest.tensors) {
    if (!list.empty()) break;
    try {
      std::vector<std::byte> one(size_of(tensor.dtype));
      for (const SavedShard& shard : tensor.shards) {
        if (shard.slice.rows * shard.slice.columns == 0) continue;
        reader.read(name, {shard.slice.row, shard.slice.column, 1, 1}, 1, one);
      }
    } catch (const RequestError& error) {
      list.emplace_back(error.what());
    }
  }
  return list;
}

}  // namespace trident
