// The executor of every schedule: it runs the lowered list of one rank, in order, on a StageRunner.
// It touches no tensor and reads no clock. It drives a runner that enqueues on a device stream the
// same way as a runner that computes at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/clock.h"
#include "scheduler/action.h"

namespace trident {

// The interface between a schedule and a rank's stages. Chunks number the stages of this rank in
// stage order (Schedule::placement). The runner owns every buffer. Where two neighbouring stages
// are on this rank, the runner passes the activation or gradient itself; no list contains this
// transfer. One thread calls it.
class StageRunner {
 public:
  virtual ~StageRunner() = default;

  virtual void forward(int chunk, int microbatch) = 0;
  virtual void backward(int chunk, int microbatch) = 0;  // input and weight gradients
  virtual void backward_input(int chunk, int microbatch) = 0;
  virtual void backward_weight(int chunk, int microbatch) = 0;

  // Receive the activation that enters this chunk. The post returns at once; the wait returns when
  // the activation has arrived.
  virtual void post_receive_forward(int chunk, int microbatch) = 0;
  virtual void wait_receive_forward(int chunk, int microbatch) = 0;
  // Sends the activation that leaves this chunk. It must not wait for the peer: the lists rely on
  // that.
  virtual void send_forward(int chunk, int microbatch) = 0;

  // Receive the gradient of the activation that leaves this chunk, and send the gradient of the
  // activation that enters it.
  virtual void post_receive_backward(int chunk, int microbatch) = 0;
  virtual void wait_receive_backward(int chunk, int microbatch) = 0;
  virtual void send_backward(int chunk, int microbatch) = 0;

  // Records the time at which all work enqueued so far is done. The stream may write `slot` later,
  // until the runner is synchronised. `slot` stays valid as long as the trace.
  virtual void mark(ClockReading& slot) = 0;

  // The bytes that the rank holds now; -1 if unknown.
  virtual std::int64_t memory() const { return -1; }

  // Runs the two computes of a fused pair (Action::fused); each is called once. A runner may let
  // them take turns.
  virtual void pair(const std::function<void()>& forward, const std::function<void()>& backward) {
    forward();
    backward();
  }

  // Called before each compute, with the next compute of this list (which may be in a later part)
  // or nullptr at the end. A runner can prefetch for it, for example its weights.
  virtual void before_compute(const LoweredAction* next) { static_cast<void>(next); }
};

struct TracedAction {
  LoweredAction action;
  ClockReading begin;
  ClockReading end;
  std::int64_t memory = -1;  // bytes that the rank holds after the action; -1 if unknown
};

// The actions that one rank ran, in order. It is plain data, so that ranks may exchange it as
// bytes.
struct ExecutionTrace {
  std::vector<TracedAction> events;
};

// Runs `list` and records it in `trace`, which it clears first. An action enters the trace when it
// begins. Of a fused pair whose computes take turns, the forward ends and the backward begins in
// the trace when one of them has ended. If the runner throws, the exception propagates and the last
// event is the action that failed. `trace` must not be moved, copied or destroyed before the runner
// is synchronised.
void execute(const std::vector<LoweredAction>& list, StageRunner& runner, ExecutionTrace& trace);
// Runs the actions [begin, end) only. A call with begin = 0 clears `trace` and reserves space for
// all of `list`; a later part continues where the previous part ended.
void execute(const std::vector<LoweredAction>& list, std::size_t begin, std::size_t end,
             StageRunner& runner, ExecutionTrace& trace);

// The compute actions that ran, for comparison with Schedule::ranks.
std::vector<Action> compute_actions(const ExecutionTrace& trace);

}  // namespace trident
