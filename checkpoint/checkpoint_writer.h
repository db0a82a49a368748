// Writes a checkpoint, or the weights alone, by all ranks together: rank 0 makes the folder and its
// files, each rank writes and sums what is its own (save_list.h), and rank 0 adds the manifest and
// puts the folder into place. Nothing is gathered but the names of slices and the sums of blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/files/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save_list.h"
#include "core/context.h"
#include "parallel/process_group.h"

namespace trident {

// What goes into the folder beside the state. Rank 0's counts.
struct CheckpointInfo {
  Manifest manifest;                         // all but tensors and files
  std::map<std::string, std::string> files;  // contents by name: config.json, a tokenizer's
};

struct CheckpointPlace {
  FileSystem* files = nullptr;
  std::string folder;                 // where it shall be, whole
  std::string saving;                 // where it is written; what is there is removed
  std::int64_t max_writers = 0;       // files of slices, at most; 0: one for each rank
  std::uint64_t min_slice = 0;        // bytes that such a file has on average, at least
  std::function<void()> before = {};  // on rank 0, before anything is written; may throw
};

// Gives this rank's portions to the sink, one after the other.
using EachPortion = std::function<void(const PortionSink&)>;

// Collective over `group`, whose waits should be patient. Gives why the checkpoint could not be
// written, the same on all ranks, with rank 0's folder removed; "" where it is there. One whose
// weights are not finite is not written.
std::string write_checkpoint(Context&, const ProcessGroup& group, const SaveList& list,
                             const CheckpointPlace& place, const CheckpointInfo& info,
                             const EachPortion& each);

}  // namespace trident
