// The operations of `trident checkpoint` and of exports, which need no ranks: find checkpoints,
// list and verify their contents, compare two of them, copy the weights alone.
//
// They never change a checkpoint. Damage is a RequestError that names the file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"

namespace trident {

// The checkpoint that `path` names: its own folder, or the checkpoint saved last in a run's folder
// (logging.dir or checkpoint.save). Throws RequestError if there is none or it can't be opened.
FoundCheckpoint checkpoint_at(const std::string& path);
// The checkpoint.save of a run. `path` is that folder or the run's logging.dir. Throws RequestError
// if it holds no checkpoint.
std::string checkpoints_of(const std::string& path);

std::int64_t bytes_of(const Manifest& manifest);

// Verifies the weights in `directory` if it is a checkpoint's folder; otherwise does nothing. Its
// other files may be missing, and config.json may have been replaced. Throws RequestError if a file
// of weights is damaged.
void require_whole_weights(const std::string& directory);

// The CRC-64/XZ of a full tensor's elements, row by row, however it was sharded.
std::uint64_t tensor_sum(CheckpointReader& reader, const std::string& name);

// A tensor or number that differs between two checkpoints.
struct Difference {
  std::string name;
  std::string what;  // "only in the first", "2 of 64 elements, by 0.25 at most", ...
};
std::vector<Difference> differences(CheckpointReader& a, CheckpointReader& b);

// Copies a checkpoint's Hugging Face files to `directory` as a complete new set
// (formats/hugging_face/weights_folder.h). It copies block by block and verifies each block.
void export_weights(const FoundCheckpoint& checkpoint, const std::string& directory);

}  // namespace trident
