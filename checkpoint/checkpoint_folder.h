// The folders of a run's checkpoints: checkpoint.save/iteration-<n>. Each folder is either complete
// or absent. A save writes a checkpoint next to the others (.trident-saving-iteration-<n>) and
// renames it once all of it is on the disk. A removal renames it first (.trident-removing-...).
// Checkpoints that are damaged, or later than the one from which a run was resumed, are quarantined
// (set-aside-iteration-<n>).
//
// Functions that take a FileSystem change the folder and throw its Error. Only one process may call
// them for a folder at a time. The others only read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "checkpoint/manifest.h"

namespace trident {

struct NodeSet;  // found_on_nodes.h

inline constexpr const char* latest_name = "latest";  // a file: the newest checkpoint's name

std::string checkpoint_name(std::int64_t iteration);  // "iteration-40"
// The iteration in a name of that form; nullopt for any other name.
std::optional<std::int64_t> iteration_of(const std::string& name);
// Whether a run gives that name to a checkpoint, including a quarantined one.
bool is_checkpoint_name(const std::string& name);
// The iteration in the name of an unfinished save's folder; nullopt for any other name.
std::optional<std::int64_t> iteration_being_saved(const std::string& name);
// The folder in which a checkpoint is written until it is complete.
std::string saving_path(const std::string& save, std::int64_t iteration);

inline constexpr std::uint64_t max_manifest_bytes = std::uint64_t{1} << 30;
// Reads the manifest of the checkpoint in `folder`. Throws RequestError if there is none, if it is
// damaged, or if one of the files that it names is missing, is not a regular file or has another
// size. The contents of the files are verified when they are read (checkpoint_reader.h).
Manifest open_checkpoint(const std::string& folder);

// A folder that has a checkpoint's name.
struct FoundCheckpoint {
  std::string path;
  std::int64_t iteration = 0;  // according to its name
  std::optional<Manifest> manifest;
  std::string problem;                           // why there is no manifest
  bool foreign = false;                          // ForeignCheckpoint: it isn't damaged
  std::shared_ptr<const NodeSet> on_nodes = {};  // its parts on nodes, if not only at `path`
};
// Sorted by iteration. Follows no links. Throws RequestError if `save` exists but can't be listed.
std::vector<FoundCheckpoint> find_checkpoints(const std::string& save);
// The checkpoints that can be opened. The one saved last comes first.
std::vector<FoundCheckpoint> newest_first(std::vector<FoundCheckpoint> found);

// Removes the remains of interrupted saves and removals. No other process may write to `save`
// meanwhile.
void clear_unfinished(FileSystem&, const std::string& save);
void remove_checkpoint(FileSystem&, const std::string& save, std::int64_t iteration);
// Quarantines a checkpoint of a run that continues without it: renames it to a name that no run
// looks for. It stays there until a user removes it. Returns its path.
std::string quarantine(FileSystem&, const std::string& save, std::int64_t iteration);
std::vector<std::string> quarantined_in(
    const std::string& save);  // paths of quarantined checkpoints

// Which of a run's checkpoints to keep.
struct Retention {
  std::int64_t limit = 0;       // number of newest checkpoints to keep; 0: all
  std::int64_t keep_every = 0;  // also keep iterations divisible by this; 0: none
  bool keep_best = false;       // also keep the one with the least validation loss
};
// The iterations of `found` that need not be kept. Every checkpoint in `found` must be one that can
// be opened. The newest one is always kept.
std::vector<std::int64_t> iterations_to_remove(const std::vector<FoundCheckpoint>& found,
                                               const Retention&);

}  // namespace trident
