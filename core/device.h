// Where tensors live and work on them runs: a device and its in-order streams.
//
// Nobody but a piece of work on a stream touches tensor memory, and it gets at it through the
// Access that the stream hands it. On the CPU device the stream runs work at once, in the caller's
// thread; on an asynchronous device (`guarded`, later CUDA) it runs later, in order.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

namespace trident {

// Which kernels serve it. `planning` models the CPU: its memory has addresses and nothing behind
// them, kernels only take the workspace that they would need, and process groups exchange nothing.
enum class DeviceKind { cpu, cuda, planning };

// The right to touch tensor memory, given to work that runs on a stream. See Access::data in
// core/tensor.h.
class Access {
 public:
  explicit Access(std::ptrdiff_t offset = 0) : offset_(offset) {}
  // The address at which the stream's work finds a device address.
  void* map(void* device_address) const {
    return static_cast<std::byte*>(device_address) + offset_;
  }

 private:
  std::ptrdiff_t offset_;
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
      work(Access{});
    } else {
      push(Work(std::forward<F>(work)));
    }
  }
  // Returns when everything enqueued has run.
  virtual void synchronize() = 0;
  bool immediate() const { return immediate_; }

 protected:
  explicit Stream(bool immediate) : immediate_(immediate) {}
  virtual void push(Work work) = 0;

 private:
  bool immediate_;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string_view name() const = 0;
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
  // What lies there is not needed until it is written again; false where that changes nothing.
  virtual bool release(void*, std::size_t) { return false; }
  virtual std::unique_ptr<Stream> make_stream() = 0;
};

// Plain host memory; streams run work at once.
std::unique_ptr<Device> make_cpu_device();

// For running a step to see what its ledger says, without doing it: the plan. Values copied to the
// host are zeros.
std::unique_ptr<Device> make_planning_device();

// CPU kernels behind addresses that fault: an allocation's address has no access rights, the same
// pages are mapped a second time where only stream work (through Access) finds them; work runs in
// order on a thread of the stream. New memory is filled with 0xff bytes (NaN in every format).
// `bytes` is the size of the device, taken from the system as it is touched.
std::unique_ptr<Device> make_guarded_device(std::size_t bytes = std::size_t{4} << 30);

}  // namespace trident
