// The trace of a step, operation by operation: kernels with their FLOPs and bytes, collectives and
// messages with the bytes that they send. On a planning device (make_planning_device) a step does
// nothing else. A plan's traffic, FLOPs, stage costs, layer split and predicted bubble are read
// from the trace, so they hold for any module. On a device that computes, kernels are timed.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/dtype.h"
#include "core/tensor.h"

namespace trident {

struct TracedOperation {
  std::string_view name;  // "gemm", "all_reduce"
  Shape shape;            // (m, n, k) of a product; otherwise of the tensor written or sent
  DType dtype = DType::f32;
  double flops = 0;        // of products, as computed; other work is bound by its bytes
  double model_flops = 0;  // as papers count: full causal attention, backward twice forward
  std::int64_t bytes_read = 0, bytes_written = 0;  // of tensors, each counted once
  // bytes_if_unfused: bytes that separate kernels would read and write for the work that is fused
  // into this operation (GELU, bias gradients, residual gradients). bytes_to_add: the same for
  // adding a product to existing values.
  std::int64_t bytes_if_unfused = 0, bytes_to_add = 0;
  // For a product of activations and weights, the transposed operands: x · Wᵀ forward, dy · W and
  // dyᵀ · x backward.
  bool transpose_a = false, transpose_b = false;
  // For a collective or a message:
  int group = -1;               // index in OperationTrace::groups()
  std::uint8_t operation = 0;   // Operation of parallel/collectives/descriptor.h
  std::uint8_t algorithm = 0;   // Algorithm of parallel/process_group.h
  int root = -1;                // of a broadcast, gather or scatter
  std::int64_t bytes_sent = 0;  // by this rank
  bool asynchronous = false;    // runs asynchronously to the stream's work
  int action = -1;              // index of the action (begin_action()); -1: none
  // For a kernel on a device that computes: its duration, and the gap since the end of the kernel
  // before it. The gap is -1 if another operation lies between them.
  double seconds = 0, gap = -1;
};

// The stream waits here for an asynchronous operation.
struct TracedWait {
  std::size_t operation = 0;  // its index in OperationTrace::operations()
  std::size_t before = 0;     // the operation that follows the wait
  int action = -1;            // as TracedOperation::action
};

class OperationTrace {
 public:
  struct Group {
    std::string name;
    int size = 1, rank = 0;
  };
  enum class Of : std::uint8_t { all, groups };  // groups: only collectives and messages

  explicit OperationTrace(Of of = Of::all) : of_(of) {}
  bool has_kernels() const { return of_ == Of::all; }

  // Where operations belong: to an action, and perhaps to work that is done again, which has no
  // model_flops.
  struct Place {
    int action = -1;
    bool repeats = false;
  };

  void add(TracedOperation operation) {
    operation.action = place_.action;
    if (place_.repeats) operation.model_flops = 0;
    operations_.push_back(operation);
  }
  // Notes a wait for operation `index`, before the next operation. On a planning device only.
  void add_wait(std::size_t index) { waits_.push_back({index, operations_.size(), place_.action}); }
  // The index of the group. It stays the same while the trace lives.
  int number_of(const std::string& name, int size, int rank);

  // Operations from here on belong to the next action (of the schedule, for example), until
  // end_action().
  void begin_action() { place_ = {actions_++}; }
  void end_action() { place_ = {}; }
  // The place of operations now, a return to it, and one to the action begun last.
  Place place() const { return place_; }
  void resume(const Place& place) { place_ = place; }
  void resume_last_action() { place_ = {actions_ - 1}; }
  void clear();  // removes operations and actions

  // The clock readings before and after the last operation, on its stream.
  struct Marks {
    ClockReading begin, end;
  };
  Marks& time_last();
  // Computes the seconds and gaps of the timed operations. Call it after the stream has run them.
  void compute_times();

  const std::vector<TracedOperation>& operations() const { return operations_; }
  const std::vector<TracedWait>& waits() const { return waits_; }
  const std::vector<Group>& groups() const { return groups_; }

 private:
  Of of_;
  std::vector<TracedOperation> operations_;
  std::vector<TracedWait> waits_;
  std::vector<Group> groups_;
  struct Timed {
    std::size_t operation = 0;
    Marks marks = {};
  };
  std::deque<Timed> timed_;  // a deque, because callers keep references to the marks
  Place place_;
  int actions_ = 0;
};

}  // namespace trident
