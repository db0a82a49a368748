// A checkpoint that is written while training goes on, by a thread of its own.
//
// The thread first copies as much of the state as its limit allows, beside the next forward passes,
// which don't change it; then it lowers its priority and writes, copying the rest as memory comes
// free. Before the state changes, training waits until the last copy is made. Where what is saved
// are copies already (device_copies.h), it waits for nothing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/files/byte_buffer.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/save_list.h"
#include "core/context.h"
#include "core/threads.h"
#include "settings/config.h"

namespace trident {

// What a save beside training may take.
struct BackgroundLimits {
  std::int64_t staging = 0;  // bytes of copies at once; one portion at least is always there
  bool apart = false;        // nobody changes what is saved: training needn't wait for copies of it
  int niceness = 0;
  IoPriority io = IoPriority::usual;
};

// How many bytes of copies this rank, or the one of those that share its work which has most to do,
// makes at once.
std::int64_t staged_bytes(const State&, DType weights, const CheckpointConfig&);

// Memory for copies, kept from one save to the next: memory that is new to a process costs as much
// as the copy.
class Staging {
 public:
  // What it has is entered into `ledger` (may be null), which outlives it.
  explicit Staging(Ledger* ledger = nullptr) : ledger_(ledger) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  // `bytes` bytes, kept ones where they fit; of those that don't as many go as must for all to stay
  // below `limit`.
  ByteBuffer take(std::int64_t bytes, std::int64_t limit);
  void keep(ByteBuffer memory);
  // Taken memory of so many bytes is gone.
  void forget(std::size_t bytes) { count(-static_cast<std::int64_t>(bytes)); }

 private:
  void count(std::int64_t bytes);

  Ledger* ledger_;
  std::int64_t bytes_ = 0;  // taken and kept
  std::multimap<std::size_t, ByteBuffer> kept_;
};

class BackgroundSave {
 public:
  // Why there is no checkpoint, "" where there is (write_checkpoint).
  using Write = std::function<std::string(const EachPortion&)>;

  // Begins. Of a state that is settled on the device. `write` is called once, on the thread, which
  // alone uses `staging` meanwhile. All outlive it. A copy that fails is a save that fails.
  BackgroundSave(Device&, SaveList&, const BackgroundLimits&, Staging& staging, Write write);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  ~BackgroundSave();  // waits for its end

  // Whether the state may change as far as this save is concerned; returns when it may.
  bool copied() const;
  void wait_until_copied();
  bool done() const;
  // Waits for the end; gives what `write` has given, or throws what it has thrown. Once.
  std::string result();

 private:
  void run();
  // As many more copies as the limit allows.
  void fill(Context&);
  void give(Context&, const PortionSink&);
  void told(bool& event);

  Device& device_;
  SaveList& list_;
  const BackgroundLimits limits_;
  Staging& staging_;
  const Write write_;
  std::deque<Portion> staged_;
  std::int64_t bytes_ = 0;  // of the memory of all copies
  std::string failure_;
  std::exception_ptr error_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool copied_ = false, done_ = false;  // under mutex_
  std::thread thread_;                  // last: it uses all others
};

}  // namespace trident
