// What people ask of checkpoints, without ranks: which there are, what is in one, whether it is
// whole, in what two differ, the weights alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"

namespace trident {

// The checkpoint that `path` names: its folder, or the one saved last in a run's folder
// (logging.dir or checkpoint.save). RequestError where there is none, or where it can't be opened.
FoundCheckpoint checkpoint_at(const std::string& path);
// checkpoint.save of a run, by that or by its logging.dir. RequestError where it holds no
// checkpoint.
std::string checkpoints_of(const std::string& path);

std::int64_t bytes_of(const Manifest& manifest);

// The CRC-64/XZ of a whole tensor's elements, row by row, whatever pieces it lies in.
// Where the directory is a checkpoint's folder: reads its weights and compares them with their
// sums; the rest of it may be gone, and config.json may be somebody's own. RequestError where one
// is damaged.
void require_whole_weights(const std::string& directory);

std::uint64_t tensor_sum(CheckpointReader& reader, const std::string& name);

// A tensor or number that two checkpoints don't have alike.
struct Difference {
  std::string name;
  std::string what;  // "only in the first", "2 of 64 elements, by 0.25 at most", ...
};
std::vector<Difference> differences(CheckpointReader& a, CheckpointReader& b);

// Copies a checkpoint's Hugging Face files to `directory`, a part at a time, each block proved, as
// a whole new set (formats/hugging_face/weights_folder.h).
void export_weights(const FoundCheckpoint& checkpoint, const std::string& directory);

}  // namespace trident
