// A folder of a run, and the file in it that says whose it is: both are locked while the run has
// them (run/folders/run_folder.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files/file.h"

namespace trident {

inline constexpr const char* run_file = ".trident-run";

// One of the folders, as it was found.
struct LockedFolder {
  const char* key = nullptr;  // of the config
  std::string path;
  FileDescriptor lock;         // of the file; none where there is none yet
  FileDescriptor folder_lock;  // none where there is no folder yet
  nlohmann::json owner = nlohmann::json::object();

  // For messages: "config: /checkpoint/save: \"weights\"".
  std::string quoted() const;
  bool exists(const std::string& name) const;
  std::string run() const;  // "" where the file doesn't say
  // The runs that were here, the last one included.
  std::vector<std::string> runs() const;
  // Whether path and file still lead to what is locked; of what wasn't there there is nothing to
  // ask.
  bool still_held() const;
};

// Whether the name still leads to what was opened; of what wasn't there there is nothing to ask.
bool leads_to(const std::string& name, const FileDescriptor& opened);

// Takes hold of the folder and of its file, where there are such; `made`: of the folder in any
// case, and with O_CREAT of the file, made once the folder is held. RequestError where another
// process has them.
void take_hold(LockedFolder& folder, bool made, int create);

// While it lives no other start looks for what the run in checkpoint.save could go on from; until
// the folders are held, which takes as long as reading does.
class StartHold {
 public:
  // Error where another start has it. Where there is no folder, or it can't be written to,
  // nothing is held.
  explicit StartHold(const std::string& save);
  StartHold(const StartHold&) = delete;
  StartHold& operator=(const StartHold&) = delete;
  ~StartHold() { release(); }
  void release();

 private:
  std::string path_;
  FileDescriptor lock_;
};

// The key of a run's file that says how the run's bf16 products are done
// (run/startup/bf16_products.h).
inline constexpr const char* bf16_products_key = "bf16_products";

// What a run writes into its folders' files.
nlohmann::ordered_json owner_of(const std::string& run_id, const std::string& command,
                                std::vector<std::string> earlier);
// A full disk keeps the text out; the lock holds all the same. Whoever dies on the way leaves the
// old text or the new one.
void sign(const LockedFolder& folder, const nlohmann::ordered_json& owner);

// The folder as its file describes it, without a lock.
LockedFolder described(const std::string& path);

}  // namespace trident
