// Whose a folder is. A run has logging.dir and checkpoint.save while it lives: each holds a file,
// .trident-run, that says which run it is and which ones were in logging.dir before. File and
// folder are locked until the run ends, however it ends. The lock belongs to the folder itself,
// whatever path or link leads there.
//
// Files of others are replaced only where that was asked for: the logs of an earlier run with
// logging.overwrite; weights, or any config.json, in checkpoint.save with checkpoint.overwrite. The
// weights that the runs in logging.dir have saved (formats/hugging_face/weights_folder.h:
// run_of_weights) are part of it: they need no word of their own.
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

// Bytes that the weights of a run take in checkpoint.save, but for the headers of their files.
std::int64_t saved_bytes(const PrecisionConfig&, std::int64_t parameters);

// RequestError, with all problems, where a run would not be allowed to write into its folders, or
// where there is no room for its weights (a set that is there stays until the new one is whole).
// `resumed` is the run that goes on, whose files are its own; "" where it is a new one. Writes
// nothing.
void check_output(const Config&, std::int64_t weight_bytes, const std::string& resumed = "");

// Whether a run that saves checkpoints, and may go on from them, has died in these folders before
// its first one: started again it begins anew, and its log files with it.
bool died_before_saving(const Config&);

// Holds the folders of a run until it goes.
class RunFolders {
 public:
  // check_output(), then makes the folders and takes hold of them; finishes and clears away what a
  // dead run was saving there, and where the run is new, the checkpoints that it may replace.
  // RequestError where one can't be made or written, or where other checkpoints lie there than
  // `start` has found; then none is left behind. `command` is for people who find the folder in
  // use.
  RunFolders(const Config&, std::int64_t weight_bytes, const std::string& command,
             const StartingPoint& start = {});

  const std::string& run_id() const { return run_id_; }
  // Error where one has been removed or replaced meanwhile: what lies there now is somebody else's.
  void require_held() const;
  // The same of checkpoint.save alone, but one that was removed, or emptied, is made anew, since
  // nothing could be saved there ever again. Gives what there is to tell of that, "" else.
  std::string hold_saves();

 private:
  std::string run_id_;
  nlohmann::ordered_json owner_;
  std::vector<LockedFolder> folders_;  // logging.dir, then checkpoint.save if there is one
};

// A run's folders, before the run takes hold of them and after.
struct FoldersToHold {
  std::int64_t weight_bytes = 0;     // that will be saved
  std::string command;               // for people who find the folders in use
  std::unique_ptr<RunFolders> held;  // once the run has begun, until this object goes
};

// Holds a folder for somebody who saves weights outside a run; makes it where it isn't there, and
// leaves nothing behind, nor an empty folder that it has made. RequestError where a run, or another
// such save, has it.
class FolderLock {
 public:
  explicit FolderLock(const std::string& directory);

 private:
  NewDirectories made_;
  std::vector<FileDescriptor> locks_;
};

}  // namespace trident
