// What process groups carried out, for a picture of an iteration: off but for that, when it costs a
// look at a flag.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace trident {

// Of one rank, plain data. Times are those of the thread that carries the operation out; on a GPU
// that thread fills a queue, and they are when it did.
struct LoggedOperation {
  std::int64_t begin_ns = 0, end_ns = 0;  // ClockReading::wall_ns
  std::int64_t bytes = 0;                 // that this rank sent, as ProcessGroup::traffic() counts
  std::int32_t peer = -1;                 // world rank, of a message
  std::uint8_t group = 0;                 // the number that ProcessGroup::log() was given
  std::uint8_t operation = 0;             // Operation (parallel/collectives/descriptor.h)
};

class OperationLog {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }
  void start() { on_ = true; }
  // What was carried out since start(), in the order in which it ended; off from here on.
  std::vector<LoggedOperation> stop() {
    on_ = false;
    const std::lock_guard lock(mutex_);
    return std::exchange(operations_, {});
  }
  // From any thread.
  void add(const LoggedOperation& operation) {
    const std::lock_guard lock(mutex_);
    operations_.push_back(operation);
  }

 private:
  std::atomic<bool> on_ = false;
  std::mutex mutex_;
  std::vector<LoggedOperation> operations_;
};

}  // namespace trident
