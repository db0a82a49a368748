// When a rank works on files. How long that takes depends on a disk, so that it doesn't count
// against the limits of those who wait for the rank, or for another one that waits for it.
#pragma once

#include <chrono>
#include <mutex>

namespace trident {

class FileTimes {
 public:
  using Clock = std::chrono::steady_clock;

  void begin();
  void end();
  // Whether the rank works on files, or has done so, for more than an eighth of `timeout`, until
  // less than a timeout ago.
  bool hold_up(Clock::duration timeout) const;

 private:
  mutable std::mutex mutex_;
  int under_way_ = 0;
  Clock::time_point begun_{}, ended_{};
};

// Work on files, while one lives. `times`: null where nobody waits.
class FileWork {
 public:
  explicit FileWork(FileTimes* times) : times_(times) {
    if (times_ != nullptr) times_->begin();
  }
  ~FileWork() {
    if (times_ != nullptr) times_->end();
  }
  FileWork(const FileWork&) = delete;
  FileWork& operator=(const FileWork&) = delete;

 private:
  FileTimes* times_;  // the transport's, which outlives its ranks' work
};

}  // namespace trident
