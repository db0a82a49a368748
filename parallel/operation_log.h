// A log of the operations that a rank's process groups carry out, for a picture of an iteration. It
// is off otherwise, and then costs a check of a flag.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace trident {

// The purpose of an exchange's operation: rows to their experts, or results back.
enum class Purpose : std::uint8_t { none, dispatch, combine };

// One operation of one rank, as plain data. The thread that carries the operation out takes the
// times. On a GPU that thread fills a queue, so they are the times of enqueuing.
struct LoggedOperation {
  std::int64_t begin_ns = 0, end_ns = 0;  // ClockReading::wall_ns
  std::int64_t bytes = 0;                 // sent by this rank, as ProcessGroup::traffic() counts
  std::int32_t peer = -1;                 // world rank at the other end of a message
  std::uint8_t group = 0;                 // the number given to ProcessGroup::log()
  std::uint8_t operation = 0;             // Operation (parallel/collectives/descriptor.h)
  Purpose purpose = Purpose::none;
};

class OperationLog {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }
  void start() { on_ = true; }
  // Ends the log. Returns the operations carried out since start(), in the order in which they
  // ended.
  std::vector<LoggedOperation> stop() {
    on_ = false;
    const std::lock_guard lock(mutex_);
    return std::exchange(operations_, {});
  }
  // Any thread may call it.
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
