#include "training/checkpoint/checkpoint_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/error.h"
#include "core/printable.h"
#include "training/checkpoint/checkpoint_folder.h"

namespace trident {
namespace {

std::string file_in(const std::string& folder, const std::string& file) {
  return (std::filesystem::path(folder) / file).string();
}

Box common(const Box& a, const Box& b) {
  Box box{std::max(a.row, b.row), std::max(a.column, b.column), 0, 0};
  box.rows = std::min(a.row + a.rows, b.row + b.rows) - box.row;
  box.columns = std::min(a.column + a.columns, b.column + b.columns) - box.column;
  return box;
}

}  // namespace

ProvedFile::ProvedFile(const std::string& path, const SavedFile& saved)
    : file_(path), saved_(saved) {
  if (file_.size() != saved.bytes) {
    throw RequestError(fmt::format("{}: has {} bytes, {} says {}", path, file_.size(),
                                   manifest_name, saved.bytes));
  }
}

const ProvedFile::Block& ProvedFile::block(std::size_t index) {
  const auto found = std::ranges::find(blocks_, index, &Block::index);
  if (found != blocks_.end()) {
    blocks_.splice(blocks_.begin(), blocks_, found);
    return blocks_.front();
  }
  if (blocks_.size() < kept) {
    blocks_.emplace_front();
  } else {
    blocks_.splice(blocks_.begin(), blocks_, std::prev(blocks_.end()));
  }
  Block& block = blocks_.front();
  block.index = SIZE_MAX;  // until it is proved
  const std::uint64_t begin = index * checkpoint_block;
  block.bytes.resize(std::min(checkpoint_block, saved_.bytes - begin));
  // The disk reads on while this one is proved and used.
  if (index >= ahead_) ahead_ = index + 1;
  for (; ahead_ <= index + read_ahead && ahead_ < saved_.blocks.size(); ++ahead_) {
    file_.will_read(ahead_ * checkpoint_block, checkpoint_block);
  }
  file_.read_at(begin, block.bytes);
  if (const std::uint64_t sum = crc64(block.bytes); sum != saved_.blocks[index]) {
    throw RequestError(fmt::format("{}: bytes {} to {} are damaged: their sum is {}, {} says {}",
                                   file_.path(), begin, begin + block.bytes.size() - 1, hex64(sum),
                                   manifest_name, hex64(saved_.blocks[index])));
  }
  block.index = index;
  return block;
}

std::span<const std::byte> ProvedFile::at(std::uint64_t offset, std::uint64_t most) {
  const Block& here = block(offset / checkpoint_block);
  const auto bytes = std::span(here.bytes).subspan(offset % checkpoint_block);
  return bytes.first(std::min<std::uint64_t>(bytes.size(), most));
}

void ProvedFile::prove_all() {
  for (std::size_t i = 0; i < saved_.blocks.size(); ++i) block(i);
}

CheckpointReader::CheckpointReader(const std::string& folder)
    : CheckpointReader(folder, open_checkpoint(folder)) {}

CheckpointReader::CheckpointReader(const std::string& folder, Manifest manifest)
    : CheckpointReader(folder, std::move(manifest),
                       [folder](const std::string& file) { return file_in(folder, file); }) {}

CheckpointReader::CheckpointReader(const std::string& folder, Manifest manifest, Locate locate)
    : folder_(folder), manifest_(std::move(manifest)), locate_(std::move(locate)) {}

const SavedTensor* CheckpointReader::find(const std::string& name) const {
  const auto it = manifest_.tensors.find(name);
  return it == manifest_.tensors.end() ? nullptr : &it->second;
}

CheckpointReader::Source& CheckpointReader::source(const std::string& file) {
  Source& source = sources_[file];
  if (source.tensors != nullptr) return source;
  const std::string path = locate_(file);
  source.bytes = std::make_unique<ProvedFile>(path, manifest_.files.at(file));
  // Its header, before anything believes it.
  const std::uint64_t size = manifest_.files.at(file).bytes;
  std::uint64_t end = 8;
  for (std::uint64_t at = 0; at < std::min(end, size);) {
    const auto bytes = source.bytes->at(at, std::min(end, size) - at);
    if (at == 0 && bytes.size() == 8) {
      end += std::min(size, load_little_endian<std::uint64_t>(bytes.data()));
    }
    at += bytes.size();
  }
  source.tensors = std::make_unique<SafetensorsFile>(path);
  return source;
}

std::string CheckpointReader::text(const std::string& file) {
  const auto saved = manifest_.files.find(file);
  const std::string path = locate_(file);
  if (saved == manifest_.files.end()) {
    throw RequestError(fmt::format("{}: {} doesn't list it", path, manifest_name));
  }
  ProvedFile source(path, saved->second);
  std::string text;
  while (text.size() < saved->second.bytes) {
    const auto bytes = source.at(text.size(), saved->second.bytes - text.size());
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return text;
}

void CheckpointReader::read(const std::string& name, const Box& box, std::int64_t stride,
                            std::span<std::byte> out) {
  const SavedTensor* tensor = find(name);
  if (tensor == nullptr) {
    throw RequestError(
        fmt::format("{}: no tensor \"{}\"", file_in(folder_, manifest_name), printable(name)));
  }
  std::int64_t elements = 0;
  for (const SavedPiece& piece : tensor->pieces) {
    const Box meet = common(piece.box, box);
    if (meet.rows <= 0 || meet.columns <= 0) continue;
    read_piece(*tensor, piece, meet, box, stride, out);
    elements += meet.rows * meet.columns;
  }
  if (elements == box.rows * box.columns) return;
  throw RequestError(
      fmt::format("{}: tensor \"{}\" has shape {}, asked for rows {} to {} and columns {} to {}",
                  file_in(folder_, manifest_name), printable(name), tensor->shape.to_string(),
                  box.row, box.row + box.rows, box.column, box.column + box.columns));
}

void CheckpointReader::read_piece(const SavedTensor& tensor, const SavedPiece& piece,
                                  const Box& meet, const Box& box, std::int64_t stride,
                                  std::span<std::byte> out) {
  Source& from = source(piece.file);
  const SafetensorsEntry& entry = from.tensors->at(piece.tensor);
  std::vector<std::int64_t> shape{piece.box.rows};
  if (tensor.shape.rank() == 2) shape.push_back(piece.box.columns);
  if (piece.transposed) std::ranges::reverse(shape);
  if (entry.dtype != tensor.dtype || entry.shape != shape) {
    throw RequestError(fmt::format("{}: tensor \"{}\" has another type or shape than {} says",
                                   from.bytes->path(), printable(piece.tensor), manifest_name));
  }
  const std::size_t element = size_of(tensor.dtype);
  // Lines of the file: rows, or columns where it has the transposed tensor.
  const bool turned = piece.transposed;
  const std::int64_t first = turned ? meet.column - piece.box.column : meet.row - piece.box.row;
  const std::int64_t inside = turned ? meet.row - piece.box.row : meet.column - piece.box.column;
  const std::int64_t pitch = turned ? piece.box.rows : piece.box.columns;
  const std::int64_t lines = turned ? meet.columns : meet.rows;
  const std::int64_t length = turned ? meet.rows : meet.columns;
  const auto target = [&](std::int64_t line, std::int64_t i) {  // byte of `out`
    const std::int64_t row = meet.row - box.row + (turned ? i : line);
    const std::int64_t column = meet.column - box.column + (turned ? line : i);
    return &out[static_cast<std::size_t>(row * stride + column) * element];
  };
  // Whole lines that follow each other in the file and in `out` alike are one.
  const bool at_once = !turned && length == pitch && length == stride;
  const std::uint64_t begin = from.tensors->offset_of(entry);
  for (std::int64_t line = 0; line < (at_once ? 1 : lines); ++line) {
    std::uint64_t offset =
        begin + static_cast<std::uint64_t>((first + line) * pitch + inside) * element;
    auto left = static_cast<std::uint64_t>(at_once ? lines * length : length) * element;
    std::uint64_t done = 0;
    while (left > 0) {
      const auto bytes = from.bytes->at(offset, left);
      if (!turned) {
        std::memcpy(target(line, 0) + done, bytes.data(), bytes.size());
      } else {
        for (std::size_t b = 0; b < bytes.size();) {  // an element may lie in two blocks
          const std::uint64_t at = done + b;
          const std::size_t n = std::min<std::size_t>(element - at % element, bytes.size() - b);
          std::memcpy(target(line, static_cast<std::int64_t>(at / element)) + at % element,
                      &bytes[b], n);
          b += n;
        }
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
      ProvedFile(file_in(folder, name), saved).prove_all();
    } catch (const std::exception& error) {
      list.emplace_back(error.what());
    }
  }
  // And that the tensors are there as the manifest says.
  CheckpointReader reader(folder, manifest);
  for (const auto& [name, tensor] : manifest.tensors) {
    if (!list.empty()) break;
    try {
      std::vector<std::byte> one(size_of(tensor.dtype));
      for (const SavedPiece& piece : tensor.pieces) {
        if (piece.box.rows * piece.box.columns == 0) continue;
        reader.read(name, {piece.box.row, piece.box.column, 1, 1}, 1, one);
      }
    } catch (const std::exception& error) {
      list.emplace_back(error.what());
    }
  }
  return list;
}

}  // namespace trident
