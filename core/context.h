// A rank's execution context: its device, stream, threads, memory and ledger. It is passed to
// functions as an argument. There are no globals, because many ranks live in one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/allocator.h"
#include "core/device.h"
#include "core/kernel_clock.h"
#include "core/ledger.h"
#include "core/tensor.h"
#include "core/thread_team.h"
#include "core/turns.h"

namespace trident {

class OperationTrace;

// State that a backend's kernels keep per rank (cached primitives). Only stream work touches it.
class KernelState {
 public:
  virtual ~KernelState() = default;
};

// How kernels choose between several ways to compute the same result.
struct KernelOptions {
  bool deterministic = true;  // the same way in every run; otherwise the fastest way found
  bool tf32 = false;          // on a GPU: fp32 products of operands rounded to 10 bits
  bool widen_bf16 = false;    // on a CPU: bf16 products of operands widened to fp32 block by block
};

// A resource of a context that other ranks still use, such as a message that has not been received.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual bool done() const = 0;
  virtual void finish() noexcept = 0;  // returns when it is done, or can no longer be used
};

class Context {
 public:
  // The device must outlive the context. The context must outlive every tensor that it made, and
  // the work on these tensors. Only one thread at a time may use a context.
  Context(Device& device, int threads, KernelOptions options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device& device() { return device_; }
  const KernelOptions& kernel_options() const { return options_; }
  // Whether nothing is computed or exchanged here, and memory is only counted
  // (make_planning_device).
  bool is_planning() const { return device_.kind() == DeviceKind::planning; }
  Stream& stream() { return *stream_; }
  ThreadTeam& team() { return team_; }
  Ledger& ledger() { return ledger_; }
  const Allocator& allocator() const { return *allocator_; }

  Tensor empty(Shape shape, DType dtype, Category category);  // values undefined

  KernelClock& kernel_clock() { return kernel_clock_; }

  // The trace in which operations are recorded, or null. It must outlive its use. Operations of
  // groups are recorded only if the groups exchange nothing (parallel/transport/planning.h).
  OperationTrace* trace() const { return trace_; }
  void set_trace(OperationTrace* trace) { trace_ = trace; }

  // Runs two coroutines, each of which gives way to the other where it waits for other ranks
  // (core/turns.h). Operations are traced for the action of the one that runs.
  void take_turns(const std::function<void()>& first, const std::function<void()>& second) {
    turns_.run(first, second);
  }
  bool shares_turns() const { return turns_.shares(); }
  void give_way();

  // Enqueues the copy in the stream's order. `source` may be reused at once.
  void copy_from_host(const Tensor& destination, std::span<const std::byte> source);
  // `destination` holds the values only after synchronize(), and must stay alive until then. On an
  // asynchronous device it is poison (0xff bytes) until then.
  void copy_to_host(std::span<std::byte> destination, const Tensor& source);
  // Calls visit(bytes) with the tensor's elements: in place if stream work finds them in host
  // memory, otherwise with a copy. Waits for the stream.
  void read_on_host(const Tensor& tensor,
                    const std::function<void(std::span<const std::byte>)>& visit);
  // Calls fill(bytes), which writes all elements of the tensor: in place if stream work finds them
  // in host memory, otherwise into a buffer that is copied to the tensor. An exception of `fill` is
  // rethrown; the elements are then undefined. Waits for the stream before `fill`.
  void write_on_host(const Tensor& tensor, const std::function<void(std::span<std::byte>)>& fill);
  void synchronize() { stream_->synchronize(); }

  template <class T>
  Tensor from_host(Shape shape, std::span<const T> values, Category category) {
    Tensor tensor = empty(shape, DTypeOf<T>::value, category);
    copy_from_host(tensor, std::as_bytes(values));
    return tensor;
  }
  // Waits for the stream.
  template <class T>
  std::vector<T> to_host(const Tensor& tensor) {
    std::vector<T> values(static_cast<std::size_t>(tensor.bytes()) / sizeof(T));
    copy_to_host(std::as_writable_bytes(std::span(values)), tensor);
    synchronize();
    return values;
  }

  // Writes the clocks into `slot` when the stream reaches this point. Read `slot` after
  // synchronize().
  void mark(ClockReading& slot) {
    if (!is_planning()) stream_->enqueue([this, &slot](const Access&) { stream_->mark(slot); });
  }

  // Holds `pending` until it is done, at the latest until this context is destroyed. Any thread may
  // call it.
  void keep(std::shared_ptr<Pending> pending);

  // The backend's state, created at the first call.
  template <class State>
  State& kernel_state() {
    if (!kernel_state_) kernel_state_ = std::make_unique<State>();
    return static_cast<State&>(*kernel_state_);
  }

 private:
  Device& device_;
  KernelOptions options_;
  Ledger ledger_;
  std::shared_ptr<Allocator> allocator_;
  ThreadTeam team_;
  std::unique_ptr<KernelState> kernel_state_;
  KernelClock kernel_clock_;
  OperationTrace* trace_ = nullptr;
  Turns turns_;
  std::mutex pending_mutex_;
  std::vector<std::shared_ptr<Pending>> pending_;
  std::unique_ptr<Stream> stream_;  // last: its thread must end before the members that it uses
};

}  // namespace trident
