// What a step does, operation by operation: kernels with their FLOPs and bytes, collectives and
// messages with what they send. On a planning device (make_planning_device) nothing else happens;
// traffic, FLOPs, stage costs, the layer split and the predicted bubble of a plan are read from it,
// so they hold for any module. On a device that computes, kernels are timed.
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
  Shape shape;            // (m, n, k) of a product, else of what is written or sent
  DType dtype = DType::f32;
  double flops = 0;        // of products, as they are computed; other work is bound by its bytes
  double model_flops = 0;  // as papers count them: causal attention whole, backward twice forward
  std::int64_t bytes_read = 0, bytes_written = 0;  // of tensors, each once
  // What kernels of their own would read and write to do what goes with it in one pass: GELU, bias
  // gradients, residual gradients; and to add a product to what is there.
  std::int64_t bytes_apart = 0, bytes_to_add = 0;
  // Of a product of activations and weights: x · Wᵀ forward, dy · W and dyᵀ · x backward.
  bool transpose_a = false, transpose_b = false;
  // Of a collective or a message.
  int group = -1;               // number in OperationTrace::groups()
  std::uint8_t operation = 0;   // Operation of parallel/collectives/descriptor.h
  std::uint8_t algorithm = 0;   // Algorithm of parallel/process_group.h
  int root = -1;                // of a broadcast, gather or scatter
  std::int64_t bytes_sent = 0;  // by this rank
  bool beside = false;          // runs beside the stream's work
  int action = -1;              // OperationTrace::begin_action(); -1: in none
  // Of a kernel on a device that computes: how long it took, and from the end of the kernel before
  // it to its begin where nothing lies between them, else -1.
  double seconds = 0, gap = -1;
};

class OperationTrace {
 public:
  struct Group {
    std::string name;
    int size = 1, rank = 0;
  };
  enum class Of : std::uint8_t { all, groups };  // groups: collectives and messages alone

  explicit OperationTrace(Of of = Of::all) : of_(of) {}
  bool has_kernels() const { return of_ == Of::all; }

  void add(TracedOperation operation) {
    operation.action = action_;
    operations_.push_back(operation);
  }
  // The number of the group, which stays while the trace lives.
  int number_of(const std::string& name, int size, int rank);

  // Operations from here on belong to the next action (of the schedule, say), until it ends.
  void begin_action() { action_ = actions_++; }
  void end_action() { action_ = -1; }
  void clear();  // operations and actions

  // Between these two marks of its stream the last operation runs.
  struct Marks {
    ClockReading begin, end;
  };
  Marks& time_last();
  // Seconds and gaps of what was timed; after the stream has run all of it.
  void settle();

  const std::vector<TracedOperation>& operations() const { return operations_; }
  const std::vector<Group>& groups() const { return groups_; }

 private:
  Of of_;
  std::vector<TracedOperation> operations_;
  std::vector<Group> groups_;
  struct Timed {
    std::size_t operation = 0;
    Marks marks = {};
  };
  std::deque<Timed> timed_;  // whose marks stay where they are
  int action_ = -1, actions_ = 0;
};

}  // namespace trident
