#include "scheduler/execute.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace trident {

namespace {

static_assert(std::is_trivially_copyable_v<TracedAction>);

void compute(const LoweredAction& action, StageRunner& runner) {
  switch (action.kind) {
    case Kind::forward:
      return runner.forward(action.chunk, action.microbatch);
    case Kind::backward:
      return runner.backward(action.chunk, action.microbatch);
    case Kind::backward_input:
      return runner.backward_input(action.chunk, action.microbatch);
    case Kind::backward_weight:
      return runner.backward_weight(action.chunk, action.microbatch);
  }
}

void run(const LoweredAction& action, StageRunner& runner) {
  switch (action.step) {
    case Step::compute:
      return compute(action, runner);
    case Step::post_receive_forward:
      return runner.post_receive_forward(action.chunk, action.microbatch);
    case Step::wait_receive_forward:
      return runner.wait_receive_forward(action.chunk, action.microbatch);
    case Step::send_forward:
      return runner.send_forward(action.chunk, action.microbatch);
    case Step::post_receive_backward:
      return runner.post_receive_backward(action.chunk, action.microbatch);
    case Step::wait_receive_backward:
      return runner.wait_receive_backward(action.chunk, action.microbatch);
    case Step::send_backward:
      return runner.send_backward(action.chunk, action.microbatch);
  }
}

}  // namespace

void execute(const std::vector<LoweredAction>& list, StageRunner& runner, ExecutionTrace& trace) {
  execute(list, 0, list.size(), runner, trace);
}

void execute(const std::vector<LoweredAction>& list, std::size_t begin, std::size_t end,
             StageRunner& runner, ExecutionTrace& trace) {
  if (begin == 0) {
    trace.events.clear();
    trace.events.reserve(list.size());  // marks are written later, so slots must not move
  }
  std::size_t next = begin;  // the compute after i
  const auto prepare = [&](std::size_t i) {
    if (list[i].step != Step::compute) return;
    next = std::max(next, i + 1);
    while (next < list.size() && list[next].step != Step::compute) ++next;
    runner.before_compute(next < list.size() ? &list[next] : nullptr);
  };
  const auto enter = [&](std::size_t i) -> TracedAction& {
    TracedAction& event = trace.events.emplace_back();
    event.action = list[i];
    return event;
  };
  for (std::size_t i = begin; i < end; ++i) {
    prepare(i);
    TracedAction& event = enter(i);
    runner.mark(event.begin);
    if (list[i].fused && i + 1 < end) {
      TracedAction& second = enter(i + 1);
      bool one_ended = false;
      const auto ended = [&] {
        if (std::exchange(one_ended, true)) return;
        runner.mark(event.end);
        event.memory = runner.memory();
        runner.mark(second.begin);
      };
      runner.pair(
          [&, i] {
            run(list[i], runner);
            ended();
          },
          [&, i] {
            prepare(i + 1);
            run(list[i + 1], runner);
            ended();
          });
      runner.mark(second.end);
      second.memory = runner.memory();
      ++i;
      continue;
    }
    run(list[i], runner);
    runner.mark(event.end);
    event.memory = runner.memory();
  }
}

std::vector<Action> compute_actions(const ExecutionTrace& trace) {
  std::vector<Action> actions;
  for (const TracedAction& event : trace.events) {
    const LoweredAction& a = event.action;
    if (a.step == Step::compute) actions.push_back({a.kind, a.stage, a.microbatch, a.fused});
  }
  return actions;
}

}  // namespace trident
