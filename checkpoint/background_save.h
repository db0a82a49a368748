// A checkpoint that a separate thread writes while training continues.
//
// The thread first copies as much of the state as its limit allows. It does so during the next
// forward passes, which don't change the state. Then it lowers its priority and writes, and copies
// the rest as memory becomes free. Training waits before it changes the state until the last copy
// is made. If the state to be saved already consists of copies (device_copies.h), training doesn't
// wait.
//
// Each rank has one BackgroundSave at a time and calls it from its training thread.
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

// The resources that a save may use while training continues.
struct BackgroundLimits {
  std::int64_t staging = 0;  // bytes of copies at once; at least one portion is always held
  bool apart = false;  // training doesn't change the saved tensors, so it needn't wait for copies
  int niceness = 0;
  IoPriority io = IoPriority::usual;
};

// The bytes of copies that a rank holds at once: the maximum over the ranks that share this rank's
// work, at most config.staging_limit.
std::int64_t staged_bytes(const State&, DType weights, const CheckpointConfig&);

// Memory for copies, kept from one save to the next: the first touch of new memory costs as much as
// the copy. Not thread-safe.
class Staging {
 public:
  // Enters its bytes into `ledger` (may be null), which must outlive it.
  explicit Staging(Ledger* ledger = nullptr) : ledger_(ledger) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  // Returns memory of at least `bytes` bytes, from the kept buffers if one fits. Otherwise it frees
  // the largest kept buffers until the total stays below `limit`.
  ByteBuffer take(std::int64_t bytes, std::int64_t limit);
  void keep(ByteBuffer memory);
  // Must be called if taken memory of `bytes` bytes was freed instead of kept.
  void forget(std::size_t bytes) { count(-static_cast<std::int64_t>(bytes)); }

 private:
  void count(std::int64_t bytes);

  Ledger* ledger_;
  std::int64_t bytes_ = 0;  // taken and kept
  std::multimap<std::size_t, ByteBuffer> kept_;
};

class BackgroundSave {
 public:
  // Returns why there is no checkpoint, or "" if it was written (write_checkpoint).
  using Write = std::function<std::string(const EachPortion&)>;

  // Starts the save. The state must be complete on the device. `write` is called once, on the
  // thread. Only the thread uses `staging` meanwhile. All arguments must outlive this object. If a
  // copy fails, the save fails.
  BackgroundSave(Device&, SaveList&, const BackgroundLimits&, Staging& staging, Write write);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  ~BackgroundSave();  // waits for the thread

  // Whether all copies are made, so that training may change the state. The second function waits
  // until they are.
  bool copied() const;
  void wait_until_copied();
  bool done() const;
  // Waits for the end. Returns the result of `write`, or throws its exception. May be called once.
  std::string result();

 private:
  void run();
  // Makes as many further copies as the limit allows.
  void fill(Context&);
  void give(Context&, const PortionSink&);
  void signal(bool& event);

  Device& device_;
  SaveList& list_;
  const BackgroundLimits limits_;
  Staging& staging_;
  const Write write_;
  std::deque<Portion> staged_;
  std::int64_t bytes_ = 0;  // memory of all copies
  std::string failure_;
  std::exception_ptr error_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool copied_ = false, done_ = false;  // guarded by mutex_
  std::thread thread_;                  // last: it uses all other members
};

}  // namespace trident
