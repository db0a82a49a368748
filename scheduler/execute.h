// One executor for every schedule: runs the lowered list of one rank, in order, on a StageRunner.
// It touches no tensor and reads no clock; a runner that enqueues on a device stream is driven the
// same way as one that computes at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/clock.h"
#include "scheduler/action.h"

namespace trident {

// What a schedule knows of a rank's stages. Chunks count the stages this rank holds, in stage order
// (Schedule::placement). The runner owns every buffer, and hands an activation or gradient over by
// itself where both stages are on this rank (such transfers are in no list). Called by one thread.
class StageRunner {
 public:
  virtual ~StageRunner() = default;

  virtual void forward(int chunk, int microbatch) = 0;
  virtual void backward(int chunk, int microbatch) = 0;  // input and weight gradients
  virtual void backward_input(int chunk, int microbatch) = 0;
  virtual void backward_weight(int chunk, int microbatch) = 0;

  // The activation that enters this chunk. A post returns at once; the wait ends when it is there.
  virtual void post_receive_forward(int chunk, int microbatch) = 0;
  virtual void wait_receive_forward(int chunk, int microbatch) = 0;
  // The activation that leaves this chunk. Must not wait for the peer: the lists rely on that.
  virtual void send_forward(int chunk, int microbatch) = 0;

  // The gradient of the activation that leaves (receive) and that enters (send) this chunk.
  virtual void post_receive_backward(int chunk, int microbatch) = 0;
  virtual void wait_receive_backward(int chunk, int microbatch) = 0;
  virtual void send_backward(int chunk, int microbatch) = 0;

  // Writes the moment at which everything enqueued so far is done. `slot` may be written later, by
  // the stream, until the runner is synchronised; it stays valid as long as the trace.
  virtual void mark(ClockReading& slot) = 0;

  // Bytes that the rank holds now; -1: not known.
  virtual std::int64_t memory() const { return -1; }

  // Before each compute: the compute of this list that follows it (be it in a later part), nullptr
  // at the end. For what can be brought near meanwhile.
  virtual void before_compute(const LoweredAction* next) { static_cast<void>(next); }
};

struct TracedAction {
  LoweredAction action;
  ClockReading begin;
  ClockReading end;
  std::int64_t memory = -1;  // bytes that the rank holds after it; -1: not known
};

// What one rank ran, in order. Plain data, so that ranks may exchange it as bytes.
struct ExecutionTrace {
  std::vector<TracedAction> events;
};

// Runs `list` and records it: an action enters the trace when it begins, so after an exception of
// the runner (passed on) the last event is the one that failed. Clears `trace` first. `trace` must
// not be moved, copied or destroyed before the runner is synchronised.
void execute(const std::vector<LoweredAction>& list, StageRunner& runner, ExecutionTrace& trace);
// Its actions [begin, end) only. From 0 on it clears `trace` and makes room for all of `list`; a
// later part goes on where the one before it ended.
void execute(const std::vector<LoweredAction>& list, std::size_t begin, std::size_t end,
             StageRunner& runner, ExecutionTrace& trace);

// The compute actions that ran, to be compared with Schedule::ranks.
std::vector<Action> compute_actions(const ExecutionTrace& trace);

}  // namespace trident
