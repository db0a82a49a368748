// Ownership of a run's folders, logging.dir and checkpoint.save. Each holds a file, .trident-run,
// that names the run and the runs that were in logging.dir before. The run locks file and folder
// until it ends, however it ends. The lock belongs to the folder itself, whatever path or link
// leads there.
//
// A run replaces files of other runs only on request: the logs of an earlier run with
// logging.overwrite; weights, or any config.json, in checkpoint.save with checkpoint.overwrite.
// logging.overwrite also covers the weights that the runs in logging.dir have saved
// (formats/hugging_face/weights_folder.h: run_of_weights).
//
// World rank 0 calls these functions, or the command before the ranks start; none is collective.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/files/file.h"
#include "run/folders/locked_folder.h"
#include "run/folders/starting_point.h"
#include "settings/config.h"

namespace trident {

// The bytes that the weights of a run take in checkpoint.save, without the headers of their files.
std::int64_t saved_bytes(const PrecisionConfig&, std::int64_t parameters);

// Throws RequestError, with all problems, if a run may not write into its folders, or if the disk
// has no space for its weights (an old set stays until the new one is complete). `resumed` is the
// id of the run that resumes, which owns its earlier files; "" for a new run. Writes nothing.
void check_output(const Config&, std::int64_t weight_bytes, const std::string& resumed = "");

// Whether a run that saves checkpoints, and may resume from them, died in these folders before its
// first checkpoint. Its next start begins from the first iteration, with new log files.
bool died_before_saving(const CheckpointConfig&, const std::string& log_dir);

// Holds the locks of a run's folders while it lives.
class RunFolders {
 public:
  // Calls check_output(), then makes and locks the folders. Finishes or removes the save that a
  // dead run left unfinished there, and, for a new run, removes the checkpoints that it may
  // replace. Throws RequestError if a folder can't be made or written, or if it holds other
  // checkpoints than `start` has found; no new folder stays then. Messages to other users of the
  // folder quote `command`.
  RunFolders(const Config&, std::int64_t weight_bytes, const std::string& command,
             const StartingPoint& start = {});

  const std::string& run_id() const { return run_id_; }
  // Throws Error if a folder was removed or replaced meanwhile: its present files belong to others.
  void require_held() const;
  // Checks checkpoint.save alone. Makes it again if it was removed or emptied, since the run could
  // never save there otherwise, and returns a warning that says so; else "". Throws Error if it was
  // replaced.
  std::string hold_saves();

 private:
  std::string run_id_;
  nlohmann::ordered_json owner_;
  std::vector<LockedFolder> folders_;  // logging.dir, then checkpoint.save if there is one
};

// A run's folders, before and after the run locks them.
struct FoldersToHold {
  std::int64_t weight_bytes = 0;     // of the weights that the run will save
  std::string command;               // for messages to other users of the folders
  std::unique_ptr<RunFolders> held;  // null until the run has begun
};

// Locks a folder for a command that saves weights outside a run. Makes the folder if it does not
// exist. The destructor removes a folder that this object made and that is still empty. Throws
// RequestError if a run, or another save of this kind, holds the folder.
class FolderLock {
 public:
  explicit FolderLock(const std::string& directory);

 private:
  NewDirectories made_;
  std::vector<FileDescriptor> locks_;
};

}  // namespace trident
