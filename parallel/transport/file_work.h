// The times in which a rank works on files. The duration of this work depends on a disk, so it does
// not count toward the timeout of ranks that wait for this rank, or for another rank that waits for
// it.
//
// Any thread may call it.
#pragma once

#include <chrono>
#include <mutex>

namespace trident {

class FileTimes {
 public:
  using Clock = std::chrono::steady_clock;

  void begin();
  void end();
  // Whether the rank works on files, or has done so for more than an eighth of `timeout` and ended
  // less than a timeout ago.
  bool hold_up(Clock::duration timeout) const;

 private:
  mutable std::mutex mutex_;
  int under_way_ = 0;
  Clock::time_point begun_{}, ended_{};
};

// Marks work on files for as long as it lives. `times` is null where no rank waits.
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
