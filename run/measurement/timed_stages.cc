#include "run/measurement/timed_stages.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "core/context.h"
#include "engine/gather_bytes.h"
#include "scheduler/execute.h"
#include "scheduler/lower.h"

namespace trident {
namespace {

constexpr double nanoseconds = 1e6;  // per millisecond

void sleep_until(std::int64_t wall_ns) {
  const std::int64_t left = wall_ns - read_clock().wall_ns;
  if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left));
}

// Keeps the cores out of their sleep states, since a virtual machine sometimes needs a millisecond
// to leave one. Each core gets a thread that runs only while the core is idle.
class AwakeCores {
 public:
  AwakeCores() {
    for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
      threads_.emplace_back([](const std::stop_token& stop) {
        const sched_param none{};
        if (sched_setscheduler(0, SCHED_IDLE, &none) != 0) return;
        while (!stop.stop_requested()) {
        }
      });
    }
  }

 private:
  std::vector<std::jthread> threads_;
};

class TimedStages final : public StageRunner {
 public:
  TimedStages(Context& context, ProcessGroup group, const Schedule& schedule,
              const StageTimes& times, double transfer)
      : context_(context),
        group_(std::move(group)),
        schedule_(schedule),
        times_(times),
        transfer_ns_(static_cast<std::int64_t>(transfer * nanoseconds)) {}

  void forward(int chunk, int) override { work(times_.forward, chunk); }
  void backward(int chunk, int microbatch) override {
    backward_input(chunk, microbatch);
    backward_weight(chunk, microbatch);
  }
  void backward_input(int chunk, int) override { work(times_.backward_input, chunk); }
  void backward_weight(int chunk, int) override { work(times_.backward_weight, chunk); }

  void post_receive_forward(int chunk, int i) override { post(chunk, i, -1, activations); }
  void wait_receive_forward(int chunk, int i) override { wait(chunk, i, activations); }
  void send_forward(int chunk, int) override { send(chunk, 1, activations); }
  void post_receive_backward(int chunk, int i) override { post(chunk, i, 1, gradients); }
  void wait_receive_backward(int chunk, int i) override { wait(chunk, i, gradients); }
  void send_backward(int chunk, int) override { send(chunk, -1, gradients); }

  void mark(ClockReading& slot) override { slot = read_clock(); }

  void finish() {
    for (const auto& [work, tensor] : sends_) work.wait(context_);
  }

 private:
  enum Channel : int { activations = 0, gradients = 1 };

  int stage(int chunk) const { return schedule_.placement[group_.rank()][chunk]; }
  int peer(int chunk, int step) const { return schedule_.rank_of_stage(stage(chunk) + step); }

  void work(const std::vector<double>& times, int chunk) {
    sleep_until(read_clock().wall_ns +
                static_cast<std::int64_t>(times[stage(chunk)] * nanoseconds));
  }
  // A message holds the time at which it was sent.
  void post(int chunk, int microbatch, int step, int channel) {
    const Tensor sent = context_.empty({1}, DType::i64, Category::communication);
    receives_[{chunk, microbatch, channel}] = {
        group_.receive(context_, sent, peer(chunk, step), Async::yes, channel), sent};
  }
  void wait(int chunk, int microbatch, int channel) {
    const auto at = receives_.find({chunk, microbatch, channel});
    at->second.first.wait(context_);
    const std::int64_t sent = context_.to_host<std::int64_t>(at->second.second)[0];
    sleep_until(sent + transfer_ns_);
    receives_.erase(at);
  }
  void send(int chunk, int step, int channel) {
    std::erase_if(sends_, [](const auto& send) { return send.first.done(); });
    const std::int64_t now = read_clock().wall_ns;
    Tensor moment =
        context_.from_host<std::int64_t>({1}, std::span(&now, 1), Category::communication);
    Work work = group_.send(context_, moment, peer(chunk, step), Async::yes, channel);
    sends_.emplace_back(std::move(work), std::move(moment));
  }

  Context& context_;
  ProcessGroup group_;
  const Schedule& schedule_;
  const StageTimes& times_;
  std::int64_t transfer_ns_;
  std::map<std::tuple<int, int, int>, std::pair<Work, Tensor>> receives_;
  std::vector<std::pair<Work, Tensor>> sends_;
};

// The number of runs: as many as fit into `seconds` (in milliseconds) by the busiest rank's work,
// at least one.
int runs_of(const Schedule& schedule, const StageTimes& times, int most) {
  constexpr double seconds = 3e3;
  double longest = 0.0;
  for (const auto& held : schedule.placement) {
    double work = 0.0;
    for (int stage : held) {
      work += times.forward[stage] + times.backward_input[stage] + times.backward_weight[stage];
    }
    longest = std::max(longest, work * schedule.microbatches);
  }
  return static_cast<int>(
      std::clamp(longest > 0.0 ? seconds / longest : 1.0, 1.0, static_cast<double>(most)));
}

// The actions that ran, in the form of a simulation, in milliseconds.
Simulation read_traces(const Schedule& schedule, const std::vector<ExecutionTrace>& traces) {
  std::int64_t zero = INT64_MAX;
  for (const ExecutionTrace& trace : traces) {
    for (const TracedAction& event : trace.events) zero = std::min(zero, event.begin.wall_ns);
  }
  Simulation result;
  for (int rank = 0; rank < schedule.stages; ++rank) {
    if (compute_actions(traces[rank]) != schedule.ranks[rank]) {
      throw Error(fmt::format("rank {} did not run its list of {}", rank, schedule.kind));
    }
    auto& timed = result.actions.emplace_back();
    for (const TracedAction& event : traces[rank].events) {
      if (event.action.step != Step::compute) continue;
      timed.push_back({static_cast<double>(event.begin.wall_ns - zero) / nanoseconds,
                       static_cast<double>(event.end.wall_ns - zero) / nanoseconds});
    }
  }
  result.bubble = bubble_of(schedule, result.actions);
  return result;
}

std::optional<Simulation> run_timed(const Schedule& schedule, const StageTimes& times,
                                    double transfer, Context& context, const ProcessGroup& world,
                                    int most_runs) {
  if (world.size() != schedule.stages) {
    throw RequestError(fmt::format("the world has {} ranks, the schedule {}; start {}",
                                   world.size(), schedule.stages, schedule.stages));
  }
  prctl(PR_SET_TIMERSLACK, 1UL);  // for this thread: its sleeps end on time
  const auto lists = lower(schedule);
  std::size_t most = 0;
  for (const auto& list : lists) most = std::max(most, list.size());
  std::optional<AwakeCores> awake;
  if (world.rank() == 0) awake.emplace();
  std::optional<Simulation> best;
  for (int run = runs_of(schedule, times, most_runs); run > 0; --run) {
    world.barrier(context);
    TimedStages stages(context, world, schedule, times, transfer);
    ExecutionTrace trace;
    execute(lists[static_cast<std::size_t>(world.rank())], stages, trace);
    stages.finish();
    const auto parts = gather_bytes(context, world,
                                    {reinterpret_cast<const std::uint8_t*>(trace.events.data()),
                                     trace.events.size() * sizeof(TracedAction)},
                                    most * sizeof(TracedAction));
    if (world.rank() != 0) continue;
    std::vector<ExecutionTrace> traces(parts.size());
    for (std::size_t r = 0; r < parts.size(); ++r) {
      traces[r].events.resize(lists[r].size());
      std::memcpy(traces[r].events.data(), parts[r].data(), lists[r].size() * sizeof(TracedAction));
    }
    Simulation ran = read_traces(schedule, traces);
    if (!best || ran.bubble.makespan < best->bubble.makespan) best = std::move(ran);
  }
  return best;
}

}  // namespace

std::optional<Simulation> run_timed(const Schedule& schedule, const StageTimes& times,
                                    double transfer, Transport& transport, int most_runs) {
  const auto device = make_cpu_device();
  Context context(*device, 1);
  return end_all_on_error(transport, [&] {
    return run_timed(schedule, times, transfer, context, transport.world(), most_runs);
  });
}

Simulation run_timed_local(const Schedule& schedule, const StageTimes& times, double transfer,
                           int most_runs) {
  std::optional<Simulation> result;
  run_local(schedule.stages, {.timeout = std::chrono::hours(24)}, [&](Transport& transport) {
    auto mine = run_timed(schedule, times, transfer, transport, most_runs);
    if (mine) result = std::move(mine);
  });
  return std::move(*result);
}

}  // namespace trident
