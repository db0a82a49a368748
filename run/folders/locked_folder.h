// A folder of a run, and the file .trident-run in it, which names the run. A run locks both with
// flock() while it lives (run/folders/run_folder.h).
//
// World rank 0 and commands call these functions; none is collective.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files/file.h"

namespace trident {

inline constexpr const char* run_file = ".trident-run";

// One folder of a run, with its locks and the contents of its file.
struct LockedFolder {
  const char* key = nullptr;  // the config key that names the folder
  std::string path;
  FileDescriptor lock;         // the open file; empty while the file does not exist
  FileDescriptor folder_lock;  // the open folder; empty while the folder does not exist
  nlohmann::json owner = nlohmann::json::object();

  // For messages: "config: /checkpoint/save: \"weights\"".
  std::string quoted() const;
  bool exists(const std::string& name) const;
  std::string run() const;  // "" if the file names no run
  // All runs that the file lists, the last one included.
  std::vector<std::string> runs() const;
  // Whether the paths still lead to the locked folder and file. A folder or file that did not exist
  // when the locks were taken counts as still held.
  bool still_held() const;
};

// Whether the path `name` still leads to the opened file. True if `opened` is empty.
bool leads_to(const std::string& name, const FileDescriptor& opened);

// Locks the folder and its file, as far as they exist. With `made` the folder must exist; with
// O_CREAT in `create` the function also creates the file, once it holds the folder. Throws
// RequestError if another process holds either of them.
void lock_folder(LockedFolder& folder, bool made, int create);

// While this object lives, no other start of the run in checkpoint.save looks for checkpoints to
// resume from. A start keeps it until it holds the run's folders; it reads checkpoints meanwhile.
class StartLock {
 public:
  // Throws Error if another start holds it. Holds nothing if the folder does not exist or can't be
  // written to.
  explicit StartLock(const std::string& save);
  StartLock(const StartLock&) = delete;
  StartLock& operator=(const StartLock&) = delete;
  ~StartLock() { release(); }
  void release();

 private:
  std::string path_;
  FileDescriptor lock_;
};

// The key in .trident-run for the run's way of computing bf16 products
// (run/startup/bf16_products.h).
inline constexpr const char* bf16_products_key = "bf16_products";

// The contents that a run writes into the .trident-run of its folders.
nlohmann::ordered_json owner_of(const std::string& run_id, const std::string& command,
                                std::vector<std::string> earlier);
// Writes `owner` into the file of the locked folder. On a full disk the text may be missing; the
// lock holds all the same. A process that dies on the way leaves the old text or the new one.
void sign(const LockedFolder& folder, const nlohmann::ordered_json& owner);

// Reads the folder's file without locking it.
LockedFolder read_without_lock(const std::string& path);

}  // namespace trident
