// The folders of a run's checkpoints: checkpoint.save/iteration-<n>, each complete or not there.
// One is written beside them (.trident-saving-iteration-<n>) and renamed when all of it is on the
// disk, and renamed (.trident-removing-...) before it is removed. Those that a run has gone back
// behind, or that are damaged, are set aside (set-aside-iteration-<n>).
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

inline constexpr const char* latest_name = "latest";  // a file: the name of the newest checkpoint

std::string checkpoint_name(std::int64_t iteration);  // "iteration-40"
// The iteration that such a name says; nothing for any other name.
std::optional<std::int64_t> iteration_of(const std::string& name);
// Whether a run gives that name to a checkpoint, one that it has set aside included.
bool is_checkpoint_name(const std::string& name);
// The iteration of the folder of a save that isn't whole; nothing for any other name.
std::optional<std::int64_t> iteration_being_saved(const std::string& name);
// Where a checkpoint is written until it is whole.
std::string saving_path(const std::string& save, std::int64_t iteration);

inline constexpr std::uint64_t max_manifest_bytes = std::uint64_t{1} << 30;
// The manifest of the checkpoint in `folder`. RequestError where there is none, where it is
// damaged, or where one of the files that it names is missing, is no regular file or has another
// size. Their contents are proved when they are read (checkpoint_reader.h).
Manifest open_checkpoint(const std::string& folder);

// A folder that bears a checkpoint's name.
struct FoundCheckpoint {
  std::string path;
  std::int64_t iteration = 0;  // by its name
  std::optional<Manifest> manifest;
  std::string problem;                           // why there is no manifest
  bool foreign = false;                          // it isn't damaged (ForeignCheckpoint)
  std::shared_ptr<const NodeSet> on_nodes = {};  // it doesn't lie at `path` alone, but there
};
// By iteration. Follows no links.
std::vector<FoundCheckpoint> find_checkpoints(const std::string& save);
// Those that can be opened, the one saved last first.
std::vector<FoundCheckpoint> newest_first(std::vector<FoundCheckpoint> found);

// For whom no other process writes there: removes what a dead save, or a dead removal, has left.
void clear_unfinished(FileSystem&, const std::string& save);
void remove_checkpoint(FileSystem&, const std::string& save, std::int64_t iteration);
// Takes one out of the run that goes on without it: it stays, under another name that no run looks
// for, until somebody removes it. Gives its path.
std::string set_aside(FileSystem&, const std::string& save, std::int64_t iteration);
std::vector<std::string> set_aside_in(const std::string& save);  // their paths

// Which of a run's checkpoints stay.
struct Retention {
  std::int64_t limit = 0;       // the newest so many; 0: all
  std::int64_t keep_every = 0;  // and those whose iteration this divides; 0: none
  bool keep_best = false;       // and the one with the least validation loss
};
// Those that don't stay, of checkpoints that can all be opened. The newest always stays.
std::vector<std::int64_t> superfluous(const std::vector<FoundCheckpoint>& found, const Retention&);

}  // namespace trident
