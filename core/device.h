// A device, which holds tensors, and its in-order streams, which run the work on them.
//
// Only work on a stream touches tensor memory, through the Access that the stream passes to it. On
// the CPU device, the stream runs work at once, in the caller's thread. On the `guarded` device,
// work runs later, in order. On a GPU, work runs at once, too, but touches no memory: it puts
// kernels and copies into the queue of its Access, and these run later, in order.
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

// The kernels that serve a device. A `planning` device stands for another device: its memory has
// addresses without storage, its kernels only take the workspace that they would need, and process
// groups exchange nothing.
enum class DeviceKind { cpu, cuda, planning };

// The right to touch tensor memory, given to work that runs on a stream. See data() in
// core/tensor.h.
class Access {
 public:
  explicit Access(std::ptrdiff_t offset = 0) : offset_(offset) {}
  // For a GPU: addresses stay as they are, and work goes into the backend's `queue`.
  static Access to_queue(void* queue) {
    Access access;
    access.queue_ = queue;
    return access;
  }
  // The address at which stream work finds a device address.
  void* map(void* device_address) const {
    return static_cast<std::byte*>(device_address) + offset_;
  }
  // Null if work touches memory itself.
  void* queue() const { return queue_; }

 private:
  std::ptrdiff_t offset_;
  void* queue_ = nullptr;
};

class Stream {
 public:
  using Work = std::function<void(const Access&)>;
  virtual ~Stream() = default;

  // Runs `work` after everything enqueued before it. Values that it captures (tensors) are kept
  // until it has run. An exception of asynchronous work is rethrown by the next synchronize().
  template <class F>
  void enqueue(F&& work) {
    if (immediate_) {
      work(access_);
    } else {
      push(Work(std::forward<F>(work)));
    }
  }
  // Returns when all enqueued work has run.
  virtual void synchronize() = 0;
  // Whether work runs at once, in the caller's thread.
  bool immediate() const { return immediate_; }

  // For stream work: copies host memory to the address `to`. `from` may be reused at once.
  virtual void write(void* to, std::span<const std::byte> from);
  // For stream work: copies from the address `from` to host memory, which holds the values after
  // the next synchronize().
  virtual void read(std::span<std::byte> to, const void* from);
  // Reads the clocks when the stream reaches this point. `slot` is valid after the next
  // synchronize().
  virtual void mark(ClockReading& slot) { slot = read_clock(); }

 protected:
  explicit Stream(bool immediate, Access access = Access{})
      : immediate_(immediate), access_(access) {}
  virtual void push(Work work) = 0;

 private:
  bool immediate_;
  Access access_;
};

// A point in the order of a GPU stream's work, for which other streams can wait. Any thread may use
// it.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual void record(const Access&) = 0;      // marks the work given to the stream so far
  virtual void wait(const Access&) const = 0;  // the stream, not the host, waits for the record
  virtual bool reached() const = 0;            // true before any record
  virtual void synchronize() const = 0;        // the host waits
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  // The kernels that work on its tensors. For a planning device, the kernels of the device that it
  // stands for.
  virtual DeviceKind kernels() const { return kind(); }
  virtual std::string_view name() const = 0;
  // Whether its memory exists. If not, allocate() only returns addresses, each of them once.
  virtual bool has_memory() const { return true; }
  // 64-byte aligned, never null. Throws OutOfMemory if no memory is left.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* address, std::size_t bytes) = 0;
  struct Segment {
    void* address;
    std::size_t bytes;
  };
  // Allocates at least `at_least` bytes, which the caller splits into blocks (core/block_pool.h).
  // deallocate() takes back the segment as it is. Where memory costs nothing before its first use,
  // the segment is far larger.
  virtual Segment allocate_segment(std::size_t at_least) { return {allocate(at_least), at_least}; }
  struct Memory {
    std::int64_t free = 0, total = 0;  // bytes, over all processes that use the device
  };
  // The memory of a GPU; zeros if the memory is the host's.
  virtual Memory memory() { return {}; }
  // Drops the contents of memory that is not needed until it is written again. Returns false if
  // this has no effect.
  virtual bool release(void*, std::size_t) { return false; }
  virtual std::unique_ptr<Stream> make_stream() = 0;
  // Null if stream work touches memory itself.
  virtual std::unique_ptr<DeviceEvent> make_event() { return nullptr; }
  // Names the work that the calling thread enqueues in a profiler's timeline (NVTX). Ranges nest.
  virtual bool has_ranges() const { return false; }
  virtual void begin_range(const std::string&) {}
  virtual void end_range() {}
};

// A named range for the lifetime of the object. `name()` is called only if the device has ranges.
class NamedRange {
 public:
  template <class Name>
  NamedRange(Device& device, const Name& name) : NamedRange(device, true, name) {}
  // Without `wanted` there is none.
  template <class Name>
  NamedRange(Device& device, bool wanted, const Name& name)
      : device_(wanted && device.has_ranges() ? &device : nullptr) {
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

// A device in plain host memory. Its streams run work at once.
std::unique_ptr<Device> make_cpu_device();

// A device for plans: a step runs without computing, to fill its ledger and its trace. Values
// copied to the host are zeros. `kernels`: cpu or cuda.
std::unique_ptr<Device> make_planning_device(DeviceKind kernels = DeviceKind::cpu);

// A device with CPU kernels and guarded addresses. The address of an allocation has no access
// rights; the same pages are mapped a second time, where only stream work (through Access) finds
// them. Work runs in order on a thread of the stream. New memory is filled with 0xff bytes (NaN in
// every format). `bytes` is the size of the device; the system provides its memory as it is
// touched.
std::unique_ptr<Device> make_guarded_device(std::size_t bytes = std::size_t{4} << 30);

}  // namespace trident
