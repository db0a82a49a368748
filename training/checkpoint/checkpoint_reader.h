// Reads a checkpoint's tensors, box by box, whatever layout has saved it. Each block of a file is
// compared with its sum before any of it is used. Not for several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/file.h"
#include "training/checkpoint/manifest.h"
#include "training/hugging_face/safetensors.h"

namespace trident {

// A file whose blocks are proved as they are read. Keeps the last few.
class ProvedFile {
 public:
  // RequestError as ReadFile, or where the file has another size than `saved`.
  ProvedFile(const std::string& path, const SavedFile& saved);

  // The bytes from `offset` on up to the end of their block, at most `most`: there until the next
  // call. RequestError, with the file's name, where the block is damaged.
  std::span<const std::byte> at(std::uint64_t offset, std::uint64_t most);
  void prove_all();
  const std::string& path() const { return file_.path(); }

 private:
  struct Block {
    std::size_t index = 0;
    std::vector<std::byte> bytes;
  };
  const Block& block(std::size_t index);

  static constexpr std::size_t kept = 2, read_ahead = 2;
  ReadFile file_;
  const SavedFile& saved_;
  std::list<Block> blocks_;  // the one used last in front
  std::size_t ahead_ = 0;    // the first block that nobody has asked the system for
};

class CheckpointReader {
 public:
  // RequestError as open_checkpoint(). Reads the manifest anew.
  explicit CheckpointReader(const std::string& folder);
  CheckpointReader(const std::string& folder, Manifest manifest);
  // Of files that don't lie together: `locate` gives each one's path.
  using Locate = std::function<std::string(const std::string& file)>;
  CheckpointReader(const std::string& folder, Manifest manifest, Locate locate);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  // nullptr where it isn't there.
  const SavedTensor* find(const std::string& name) const;

  // The elements of a box of a tensor, as they are stored, row by row `stride` elements apart, into
  // `out`. RequestError, with the file's name, for what is damaged, or isn't as the manifest says.
  void read(const std::string& name, const Box& box, std::int64_t stride, std::span<std::byte> out);

  // The whole text of one of the folder's files.
  std::string text(const std::string& file);

 private:
  // A file of tensors.
  struct Source {
    std::unique_ptr<ProvedFile> bytes;
    std::unique_ptr<SafetensorsFile> tensors;
  };
  Source& source(const std::string& file);
  void read_piece(const SavedTensor&, const SavedPiece&, const Box& meet, const Box& box,
                  std::int64_t stride, std::span<std::byte> out);

  std::string folder_;
  Manifest manifest_;
  Locate locate_;
  std::map<std::string, Source> sources_;
};

// What is wrong with the contents of the files of a checkpoint, by reading all of them; none where
// all are whole.
std::vector<std::string> damages(const std::string& folder, const Manifest& manifest);

}  // namespace trident
