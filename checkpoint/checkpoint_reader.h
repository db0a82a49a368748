// Reads slices of a checkpoint's tensors, whatever layout saved them. Each block of a file is
// compared with its checksum before any of its bytes is used.
//
// A reader is not thread-safe; each rank has its own. Errors about the checkpoint are RequestErrors
// that name the file.
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
  // Reads the manifest itself. Throws RequestError as open_checkpoint() does.
  explicit CheckpointReader(const std::string& folder);
  // Readers of the same folder in one process share the blocks that they read.
  CheckpointReader(const std::string& folder, Manifest manifest);
  // For files that don't lie in one folder.
  CheckpointReader(const std::string& folder, Manifest manifest, VerifiedBlocks::Locate locate);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  // nullptr if the checkpoint has no such tensor.
  const SavedTensor* find(const std::string& name) const;

  // Copies a slice of a tensor to `out`, in the saved dtype. Rows begin `stride` elements apart.
  // Throws RequestError, with the file's name, for files that are damaged or differ from the
  // manifest.
  void read(const std::string& name, const TensorSlice& slice, std::int64_t stride,
            std::span<std::byte> out);

  // Splits a slice into its intersections with the saved shards. If the parts of many tensors are
  // read in the order of their places, each file is read from beginning to end.
  struct Part {
    std::pair<std::string, std::uint64_t> place;  // of the shard: file, byte
    TensorSlice slice;
  };
  std::vector<Part> parts_of(const std::string& name, const TensorSlice& slice);

  // The full text of one of the folder's files.
  std::string text(const std::string& file);

 private:
  const SafetensorsFile& tensors_of(const std::string& file);
  const SafetensorsEntry& entry_of(const SavedTensor&, const SavedShard&);
  // The bytes from `offset` to the end of its block, at most `most`. They are valid until the next
  // call.
  std::span<const std::byte> at(const std::string& file, std::uint64_t offset, std::uint64_t most);
  void read_shard(const SavedTensor&, const SavedShard&, const TensorSlice& meet,
                  const TensorSlice& slice, std::int64_t stride, std::span<std::byte> out);

  std::string folder_;
  Manifest manifest_;
  std::shared_ptr<VerifiedBlocks> blocks_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  // The block that was requested last.
  std::string file_;
  std::uint64_t index_ = 0;
  VerifiedBlocks::Block block_;
};

// Reads all files of a checkpoint and returns a message for each damage; empty if there is none.
std::vector<std::string> damages(const std::string& folder, const Manifest& manifest);

}  // namespace trident
