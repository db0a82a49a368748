// The manifest of a checkpoint: trident/manifest.json in its folder. It names every tensor with its
// full shape and lists the slices of the tensor and the safetensors files that hold them. So a
// reader needs no knowledge of the layout that saved it. It also has a checksum for every block of
// every file, so a rank can verify exactly the bytes that it reads.
//
//   {"format": "trident checkpoint", "version": 1, "block_bytes": 16777216,
//    "iteration": 40, "sequence": 4, "run_id": "...",
//    "made_by": {"layout": "dp 2 x tp 1 x pp 1", ...},
//    "data": {"samples": 640, "tokens": 81920},
//    "numbers": {"optimizer.step": 40, ...},
//    "tensors": {"exp_avg/layers.0.mlp.up.weight": {"dtype": "F32", "shape": [512, 128],
//       "pieces": [["trident/state-00001-of-00002.safetensors", NAME, row, column, rows, columns],
//                  ...]}, ...},
//    "files": {"model.safetensors": {"bytes": N, "blocks": ["<CRC-64/XZ in hex>", ...]}, ...},
//    "root": "<CRC-64/XZ of the text before this key>"}
//
// A one-dimensional tensor is a column. If a piece has a seventh member, `true`, the file's tensor
// is the transposed slice. Version 2 has tensors of up to four dimensions; their columns are the
// last dimension, and the others in row-major order number the rows. A manifest without such a
// tensor is of version 1, which every version of the program reads. Later versions are refused.
//
// Everything here is pure: it reads and writes no files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "core/dtype.h"
#include "core/tensor.h"
#include "parallel/placement.h"

namespace trident {

// Thrown for a checkpoint that may be undamaged but can't be used here: this user lacks the rights,
// or it has a later format.
class ForeignCheckpoint : public RequestError {
 public:
  using RequestError::RequestError;
};

inline constexpr std::uint64_t checkpoint_block = std::uint64_t{16} << 20;  // bytes
inline constexpr const char* manifest_name = "trident/manifest.json";

struct SavedShard {
  std::string file, tensor;  // a safetensors file of the folder, and its tensor
  TensorSlice slice;         // of the full tensor
  bool transposed = false;
  bool operator==(const SavedShard&) const = default;
};

struct SavedTensor {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<SavedShard> shards;  // tile the shape
  bool operator==(const SavedTensor&) const = default;
};

struct SavedFile {
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> blocks;  // CRC-64/XZ of each block of checkpoint_block bytes
  bool operator==(const SavedFile&) const = default;
};

using SavedNumber = std::variant<std::int64_t, double>;

struct Manifest {
  static constexpr std::int64_t latest = 2;  // the latest version that this program reads

  std::int64_t iteration = 0;  // number of updates that the state has had
  // Grows with every save into a folder, whatever the iterations and the hosts' clocks say: the
  // checkpoint saved later has the larger number.
  std::int64_t sequence = 0;
  std::string run_id;
  std::map<std::string, std::string> made_by;  // for people; explains differing last digits
  std::int64_t samples = 0, tokens = 0;        // consumed so far
  std::map<std::string, SavedNumber> numbers;
  std::map<std::string, SavedTensor> tensors;  // by "<state>/<parameter>"
  std::map<std::string, SavedFile> files;      // by path in the folder; all files but the manifest
  std::string root;                            // of the text that was read or written
};

// The text of the manifest file. Sets `root`.
std::string manifest_text(Manifest& manifest);
// Parses a manifest and checks it: root and format are right, every file that a piece names is
// listed, names stay in the folder, counts are at most 2^53, and the pieces of each tensor tile it
// and fit into their files. Otherwise it throws RequestError, "`name`: JSON pointer: rule". Throws
// ForeignCheckpoint for another version of the format.
Manifest parse_manifest(std::string_view text, const std::string& name);

// "exp_avg/layers.0.mlp.up.weight"
std::string saved_name(std::string_view state, std::string_view parameter);
std::string hex64(std::uint64_t value);

}  // namespace trident
