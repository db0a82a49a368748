// Where tensors live and work on them runs: a device and its in-order streams.
//
// Nobody but a piece of work on a stream touches tensor memory, and it gets at it through the
// Access that the stream hands it. On the CPU device the stream runs work at once, in the caller's
// thread; on the `guarded` device it runs later, in order. On a GPU work runs at once, too, but
// touches no memory: it puts kernels and copies into the queue that its Access names, and those run
// later, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/clock.h"

namespace trident {

// Which kernels serve it. `planning` stands for another: its memory has addresses and nothing
// behind them, kernels only take the workspace that they would need, and process groups exchange
// nothing.
enum class DeviceKind { cpu, cuda, planning };

// The right to touch tensor memory, given to work that runs on a stream. See Access::data in
// core/tensor.h.
class Access {
 public:
  explicit Access(std::ptrdiff_t offset = 0) : offset_(offset) {}
  // Of a GPU: addresses as they are, work goes into the backend's `queue`.
  static Access to_queue(void* queue) {
    Access access;
    access.queue_ = queue;
    return access;
  }
  // The address at which the stream's work finds a device address.
  void* map(void* device_address) const {
    return static_cast<std::byte*>(device_address) + offset_;
  }
  // Null where work itself touches memory.
  void* queue() const { return queue_; }

 private:
  std::ptrdiff_t offset_;
  void* queue_ = nullptr;
};

class Stream {
 public:
  using Work = std::function<void(const Access&)>;
  virtual ~Stream() = default;

  // Runs `work` after everything enqueued before it. What it captures by value (tensors) is kept
  // until it has run. An exception of asynchronous work is rethrown by the next synchronize().
  template <class F>
  void enqueue(F&& work) {
    if (immediate_) {
      work(access_);
    } else {
      push(Work(std::forward<F>(work)));
    }
  }
  // Returns when everything enqueued has run.
  virtual void synchronize() = 0;
  // Work runs at once in the caller's thread.
  bool immediate() const { return immediate_; }

  // In stream work. Host memory to the address `to`; `from` may be reused at once.
  virtual void write(void* to, std::span<const std::byte> from);
  // The address `from` to host memory, which holds the values after the next synchronize().
  virtual void read(std::span<std::byte> to, const void* from);
  // The clocks when the stream gets here; there after the next synchronize().
  virtual void mark(ClockReading& slot) { slot = read_clock(); }

 protected:
  explicit Stream(bool immediate, Access access = Access{})
      : immediate_(immediate), access_(access) {}
  virtual void push(Work work) = 0;

 private:
  bool immediate_;
  Access access_;
};

// A point in the order of a GPU stream's work, for which other streams can wait. Any thread.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual void record(const Access&) = 0;      // what the stream has been given so far
  virtual void wait(const Access&) const = 0;  // the stream waits for the last record, not the host
  virtual bool reached() const = 0;            // true before any record
  virtual void synchronize() const = 0;        // the host waits
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  // Whose kernels work on its tensors; of a planning device, those that it counts for.
  virtual DeviceKind kernels() const { return kind(); }
  virtual std::string_view name() const = 0;
  // Whether its memory exists. If not, allocate() returns addresses alone, each of them once.
  virtual bool has_memory() const { return true; }
  // 64-byte aligned, never null; throws Error when there is no memory left.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* address, std::size_t bytes) = 0;
  struct Segment {
    void* address;
    std::size_t bytes;
  };
  // At least `at_least` bytes, to be cut into blocks (core/block_pool.h); given back as they are by
  // deallocate(). Where memory costs nothing before its first use, far more.
  virtual Segment allocate_segment(std::size_t at_least) { return {allocate(at_least), at_least}; }
  struct Memory {
    std::int64_t free = 0, total = 0;  // bytes, of all processes that use it
  };
  // Of a GPU; nothing of memory that is the host's.
  virtual Memory memory() { return {}; }
  // What lies there is not needed until it is written again; false where that changes nothing.
  virtual bool release(void*, std::size_t) { return false; }
  virtual std::unique_ptr<Stream> make_stream() = 0;
  // Null where stream work itself touches memory.
  virtual std::unique_ptr<DeviceEvent> make_event() { return nullptr; }
  // What the calling thread enqueues, named in a profiler's timeline (NVTX); they nest.
  virtual bool has_ranges() const { return false; }
  virtual void begin_range(const std::string&) {}
  virtual void end_range() {}
};

// A named range while it lives; `name()` is called where the device has ranges.
class NamedRange {
 public:
  template <class Name>
  NamedRange(Device& device, const Name& name) : device_(device.has_ranges() ? &device : nullptr) {
    if (device_ != nullptr) device_->begin_range(name());
  }
  ~NamedRange() {
    if (device_ != nullptr) device_->end_range();
  }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  Device* device_;
};

// Plain host memory; streams run work at once.
std::unique_ptr<Device> make_cpu_device();

// For running a step to see what its ledger and its trace say, without doing it: the plan. Values
// copied to the host are zeros. `kernels`: cpu or cuda.
std::unique_ptr<Device> make_planning_device(DeviceKind kernels = DeviceKind::cpu);

// CPU kernels behind addresses that fault: an allocation's address has no access rights, the same
// pages are mapped a second time where only stream work (through Access) finds them; work runs in
// order on a thread of the stream. New memory is filled with 0xff bytes (NaN in every format).
// `bytes` is the size of the device, taken from the system as it is touched.
std::unique_ptr<Device> make_guarded_device(std::size_t bytes = std::size_t{4} << 30);

}  // namespace trident
