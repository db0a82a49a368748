// Reads a checkpoint's tensors, box by box, whatever layout has saved it. Each block of a file is
// compared with its sum before any of it is used. Not for several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/verified_blocks.h"
#include "formats/hugging_face/safetensors.h"

namespace trident {

class CheckpointReader {
 public:
  // RequestError as open_checkpoint(). Reads the manifest anew.
  explicit CheckpointReader(const std::string& folder);
  // Readers of one process share what they read of one folder.
  CheckpointReader(const std::string& folder, Manifest manifest);
  // Of files that don't lie together.
  CheckpointReader(const std::string& folder, Manifest manifest, VerifiedBlocks::Locate locate);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  // nullptr where it isn't there.
  const SavedTensor* find(const std::string& name) const;

  // The elements of a box of a tensor, as they are stored, row by row `stride` elements apart, into
  // `out`. RequestError, with the file's name, for what is damaged, or isn't as the manifest says.
  void read(const std::string& name, const TensorSlice& slice, std::int64_t stride,
            std::span<std::byte> out);

  // The parts of a box that lie in one piece each. Read in the order of their places, parts of many
  // tensors are read from the beginning of each file to its end.
  struct Part {
    std::pair<std::string, std::uint64_t> place;  // of the piece: file, byte
    TensorSlice slice;
  };
  std::vector<Part> parts_of(const std::string& name, const TensorSlice& slice);

  // The whole text of one of the folder's files.
  std::string text(const std::string& file);

 private:
  const SafetensorsFile& tensors_of(const std::string& file);
  const SafetensorsEntry& entry_of(const SavedTensor&, const SavedShard&);
  // The bytes from `offset` on up to the end of their block, at most `most`: there until the next
  // call.
  std::span<const std::byte> at(const std::string& file, std::uint64_t offset, std::uint64_t most);
  void read_shard(const SavedTensor&, const SavedShard&, const TensorSlice& meet,
                  const TensorSlice& slice, std::int64_t stride, std::span<std::byte> out);

  std::string folder_;
  Manifest manifest_;
  std::shared_ptr<VerifiedBlocks> blocks_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  // The block that was asked for last.
  std::string file_;
  std::uint64_t index_ = 0;
  VerifiedBlocks::Block block_;
};

// What is wrong with the contents of the files of a checkpoint, by reading all of them; none where
// all are whole.
std::vector<std::string> damages(const std::string& folder, const Manifest& manifest);

}  // namespace trident
