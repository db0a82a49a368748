// Writes a checkpoint, or the weights alone. Collective: rank 0 creates the folder and its files,
// each rank writes and checksums its own elements (save_list.h), and rank 0 adds the manifest and
// renames the folder to its final name. The ranks exchange only the names of slices and the
// checksums of blocks.
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

// The contents of the folder other than the state. Only rank 0's are used.
struct CheckpointInfo {
  Manifest manifest;                         // all fields but tensors and files
  std::map<std::string, std::string> files;  // contents by name: config.json, a tokenizer's files
};

struct CheckpointPlace {
  FileSystem* files = nullptr;
  std::string folder;                 // the final path
  std::string saving;                 // the path while it is written; anything there is removed
  std::int64_t max_writers = 0;       // most files of slices; 0: one for each rank
  std::uint64_t min_slice = 0;        // least average bytes of a file of slices
  std::function<void()> before = {};  // called on rank 0 before anything is written; may throw
};

// Passes this rank's portions to the sink, one after the other.
using EachPortion = std::function<void(const PortionSink&)>;

// Collective over `group`, which should be a group without time-out. Returns "" if the checkpoint
// was written. Otherwise it removes rank 0's folder and returns the reason, the same on all ranks.
// A checkpoint with weights that are not finite is not written.
std::string write_checkpoint(Context&, const ProcessGroup& group, const SaveList& list,
                             const CheckpointPlace& place, const CheckpointInfo& info,
                             const EachPortion& each);

}  // namespace trident
