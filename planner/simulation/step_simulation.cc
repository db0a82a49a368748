#include "planner/simulation/step_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "engine/setup/from_config.h"
#include "engine/setup/model_costs.h"
#include "parallel/topology.h"
#include "planner/plan/fit.h"
#include "planner/plan/planned_rank.h"
#include "scheduler/warm_up.h"

namespace trident {
namespace {

DType computed_in(const PrecisionConfig& precision) {
  return dtype_of(precision.dtype);
}

class StepSimulator {
 public:
  StepSimulator(const Config& config, const Architecture& architecture, const Machine& machine,
                const Assumptions& assumptions, const WhatIf& what_if)
      : config_(config),
        architecture_(architecture),
        machine_(machine),
        assumptions_(assumptions),
        what_if_(what_if),
        mesh_(mesh_of(config.parallel)),
        schedule_(schedule_of(config)),
        planner_(config, architecture, schedule_),
        rank_of_(static_cast<std::size_t>(schedule_.total_stages())) {
    if (!assumptions.fused_attention && config.parallel.context_parallel_size > 1) {
      throw RequestError(
          "--assume attention=in_memory: scores of complete samples need context_parallel_size 1; "
          "leave one of the two out");
    }
    for (int place = 0; place < schedule_.stages; ++place) {
      for (const int stage : schedule_.placement[static_cast<std::size_t>(place)]) {
        rank_of_[static_cast<std::size_t>(stage)] = place;
      }
    }
  }

  SimulatedStep run() {
    SimulatedStep step{.world_size = config_.world_size(),
                       .model_flops = flops_per_step(config_, architecture_),
                       .peak_flops = machine_.peak_of(computed_in(config_.precision)),
                       .tokens = config_.batch.global_batch_size * config_.data.sequence_length};
    need_nodes();
    need_places();
    within_layers_ =
        group_shape(mesh_, ends_of(schedule_), layer_traffic(), 0, machine_.devices_per_node);
    for (int place = 0; place < schedule_.stages; ++place) {
      costs_.push_back(costs_of_place(place, pipeline_[static_cast<std::size_t>(place)]));
    }
    for (int place = 0; place < schedule_.stages; ++place) {
      const auto at = static_cast<std::size_t>(place);
      lists_.push_back(traced_[costs_[at]].of(schedule_.ranks[at], schedule_.placement[at]));
    }
    step.schedule = schedule_;
    step.simulation = replay(schedule_, durations(), transfers());
    overlaps_ = overlaps_next_iteration(schedule_);
    const Bubble& bubble = step.simulation.bubble;
    step.bubble_ratio = overlaps_ ? bubble.ratio_span : bubble.ratio;
    step.hardware_flops = hardware_flops();
    add_ranks(step);
    return step;
  }

 private:
  void need_nodes() const {
    const std::int64_t there = machine_.nodes * machine_.devices_per_node;
    if (machine_.nodes == 0 || config_.world_size() <= there) return;
    throw RequestError(fmt::format("{}: has {} of {}, {} in all; the config has {}", machine_.name,
                                   counted(machine_.nodes, "node"),
                                   counted(machine_.devices_per_node, "device"), there,
                                   counted(config_.world_size(), "rank")));
  }

  void need_places() const {
    for (const auto& [option, place] : {std::pair("--straggler", what_if_.straggler_place),
                                        std::pair("--slow-link", what_if_.slow_place)}) {
      if (place < schedule_.stages) continue;
      throw RequestError(fmt::format("{}: place {}: the pipeline has {} places, from 0 on", option,
                                     place, schedule_.stages));
    }
  }

  // Whether any rank at a place is on the node with the slow link. All groups of that rank wait for
  // it.
  bool has_slow_link(int place) const {
    if (what_if_.slow_link <= 1) return false;
    const auto node = [&](int rank) { return rank / machine_.devices_per_node; };
    const auto slow = node(pipeline_[static_cast<std::size_t>(what_if_.slow_place)]);
    const std::vector<int> ranks = mesh_.same_stage(place);
    return std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return node(rank) == slow; });
  }

  // Returns the machine as the devices at a place see it.
  Machine machine_at(int place) const {
    Machine machine = machine_;
    if (what_if_.straggler > 1 && place == what_if_.straggler_place) {
      for (auto& [dtype, rate] : machine.device.peak) rate /= what_if_.straggler;
      for (auto& [name, kernels] : machine.device.kernels) {
        for (MeasuredKernel& kernel : kernels) kernel.seconds *= what_if_.straggler;
      }
      machine.device.memory_bandwidth /= what_if_.straggler;
      machine.device.launch *= what_if_.straggler;
    }
    if (has_slow_link(place)) machine.across.bandwidth /= what_if_.slow_link;
    return machine;
  }

  // Returns the index of the traced rank that matches this place: equal numbers of layers in each
  // chunk, the same ends of the model, groups that are spread over nodes alike.
  std::size_t costs_of_place(int place, int rank) {
    const auto& held = schedule_.placement[static_cast<std::size_t>(place)];
    std::vector<std::int64_t> key;
    for (const int stage : held) {
      key.push_back(config_.pipeline.layer_split[static_cast<std::size_t>(stage)]);
      key.push_back(stage == 0 ? 1 : stage + 1 == schedule_.total_stages() ? 2 : 0);
    }
    for (const std::string& traffic : traffic_names(mesh_)) {
      if (traffic == "pipeline" || traffic == "embedding") continue;
      key.push_back(group_shape(mesh_, ends_of(schedule_), traffic, rank, machine_.devices_per_node)
                        .members_per_node);
    }
    key.push_back(what_if_.straggler > 1 && place == what_if_.straggler_place ? 1 : 0);
    key.push_back(has_slow_link(place) ? 1 : 0);
    const auto [at, added] = known_.try_emplace(key, traced_.size());
    if (added) {
      const TracedStep step = planner_.trace(place);
      traced_.emplace_back(config_, machine_at(place), mesh_, ends_of(schedule_), assumptions_,
                           step, held, rank);
      flops_.push_back(flops_per_micro_batch(step));
    }
    return at->second;
  }

  // Returns the FLOPs of one device as papers count them, with recomputation.
  double flops_per_micro_batch(const TracedStep& step) const {
    double flops = 0;
    for (const TracedOperation& one : step.trace.operations()) flops += one.model_flops;
    return flops / static_cast<double>(step.microbatches);
  }

  double hardware_flops() const {
    double flops = 0;
    for (const std::size_t of : costs_) flops += flops_[of];
    const double beside = static_cast<double>(config_.world_size()) / schedule_.stages;
    return flops * beside * static_cast<double>(config_.num_microbatches());
  }

  bool same_node(int rank, int other) const {
    return rank / machine_.devices_per_node == other / machine_.devices_per_node;
  }

  // Returns the seconds of an action's message to the rank of the next stage.
  double message_of(int place, std::size_t position) const {
    const auto& list = schedule_.ranks[static_cast<std::size_t>(place)];
    const double bytes = lists_[static_cast<std::size_t>(place)][position]->sent_on;
    if (bytes == 0 || what_if_.free_messages) return 0;
    const Action& action = list[position];
    const int next = action.stage + (action.kind == Kind::forward ? 1 : -1);
    if (next < 0 || next >= schedule_.total_stages()) return 0;
    const int to = rank_of_[static_cast<std::size_t>(next)];
    if (to == place) return 0;
    Machine machine = machine_;
    if (has_slow_link(place) || has_slow_link(to)) machine.across.bandwidth /= what_if_.slow_link;
    const bool near = same_node(pipeline_[static_cast<std::size_t>(place)],
                                pipeline_[static_cast<std::size_t>(to)]);
    if (!assumptions_.transfers_cut || config_.parallel.sequence_parallel) {
      return message_seconds(machine, bytes, near);
    }
    const auto parts = static_cast<double>(within_layers_.members);
    return message_seconds(machine, bytes / parts, near) +
           collective_seconds(machine, Operation::all_gather, bytes, within_layers_);
  }

  std::vector<std::vector<double>> durations() const {
    std::vector<std::vector<double>> all;
    for (int place = 0; place < schedule_.stages; ++place) {
      std::vector<double>& list = all.emplace_back();
      const auto& costs = lists_[static_cast<std::size_t>(place)];
      for (std::size_t i = 0; i < costs.size(); ++i) {
        double seconds = costs[i]->seconds.total();
        if (!assumptions_.transfers_overlap_compute) seconds += message_of(place, i);
        list.push_back(seconds);
      }
    }
    return all;
  }

  TransferTimes transfers() const {
    TransferTimes times;
    times.forward.assign(static_cast<std::size_t>(schedule_.total_stages()), 0.0);
    times.backward = times.forward;
    if (!assumptions_.transfers_overlap_compute) return times;
    for (int place = 0; place < schedule_.stages; ++place) {
      const auto& list = schedule_.ranks[static_cast<std::size_t>(place)];
      for (std::size_t i = 0; i < list.size(); ++i) {
        auto& of_kind = list[i].kind == Kind::forward ? times.forward : times.backward;
        double& time = of_kind[static_cast<std::size_t>(list[i].stage)];
        if (list[i].kind != Kind::backward_weight) time = std::max(time, message_of(place, i));
      }
    }
    return times;
  }

  // Returns the time from one iteration of a rank to the next.
  double iteration(const SimulatedStep& step, int place) const {
    const auto& timed = step.simulation.actions[static_cast<std::size_t>(place)];
    if (schedule_.asynchronous()) return steady_;
    if (!overlaps_) return timed.empty() ? 0 : timed.back().end;
    return timed.empty() ? 0 : timed.back().end - timed.front().start;
  }

  // A run without flushes goes at the pace of its busiest rank. Returns that rank's compute time.
  double busiest(const SimulatedStep& step) const {
    double most = 0;
    for (const auto& timed : step.simulation.actions) {
      double busy = 0;
      for (const TimedAction& action : timed) busy += action.end - action.start;
      most = std::max(most, busy);
    }
    return most;
  }

  // Adds a collective of an action that began at `begun`. It starts after earlier collectives,
  // which end at `stream`.
  static void add_overlapped(SimulatedStep& step, int place, const OverlappedCollective& one,
                             double begun, double& stream, std::map<std::string, double>& groups) {
    const double start = std::max(stream, begun + one.offset);
    stream = start + one.seconds;
    if (one.waited) return;  // already in its action's time
    groups[one.group] += one.seconds;
    step.overlapped.push_back({place, one.group, one.operation, start, one.seconds});
  }

  void add_ranks(SimulatedStep& step) {
    steady_ = busiest(step);
    if (schedule_.asynchronous()) step.bubble_ratio = 0;
    double compute_end = 0, around = 0;
    for (int place = 0; place < schedule_.stages; ++place) {
      const auto at = static_cast<std::size_t>(place);
      const auto& timed = step.simulation.actions[at];
      RankSeconds rank;
      std::map<std::string, double> groups;
      // Collectives that overlap compute run one after the other.
      double stream = 0;
      for (std::size_t i = 0; i < timed.size(); ++i) {
        const ActionCost& cost = *lists_[at][i];
        rank.busy.add(cost.seconds);
        if (!assumptions_.transfers_overlap_compute) rank.messages += message_of(place, i);
        for (const OverlappedCollective& one : cost.overlapped) {
          add_overlapped(step, place, one, timed[i].start, stream, groups);
        }
        for (const auto& [group, seconds] : cost.hidden) groups[group] += seconds;
        if (const double message = message_of(place, i); message > 0) {
          groups["pipeline"] += message;
          if (assumptions_.transfers_overlap_compute) {
            step.overlapped.push_back(
                {place, "pipeline", Operation::message, timed[i].end, message});
          }
        }
      }
      const double end = timed.empty() ? 0 : timed.back().end;
      const ActionCost& last = traced_[costs_[at]].around();
      const Bubble& bubble = step.simulation.bubble;
      const double whole = schedule_.asynchronous() ? steady_
                           : overlaps_              ? bubble.longest_span
                                                    : bubble.makespan;
      // A rounding error is no waiting time.
      rank.waiting = std::max(0.0, whole - rank.busy.total() - rank.messages);
      if (schedule_.asynchronous()) step.bubble_ratio += rank.waiting / whole / schedule_.stages;
      // The gradient sums end before the update; the gathers of new weights come after it. `before`
      // is the rank's own work until it waits for the last sum.
      const auto gathers = [](const OverlappedCollective& one) {
        return one.operation == Operation::all_gather;
      };
      double summed = std::max(end, stream), before = 0;
      for (const OverlappedCollective& one : last.overlapped) {
        if (gathers(one)) continue;
        add_overlapped(step, place, one, end, stream, groups);
        if (!one.waited) summed = std::max(summed, stream), before = one.offset;
      }
      const double late = std::max(0.0, summed - end - before);
      for (const OverlappedCollective& one : last.overlapped) {
        if (gathers(one)) add_overlapped(step, place, one, end + late, stream, groups);
      }
      rank.exposed = late + std::max(0.0, stream - end - late - last.seconds.total());
      rank.busy.add(last.seconds);
      for (const auto& [group, seconds] : rank.busy.groups) groups[group] += seconds;
      double at_end = end + late;
      for (const auto& [group, seconds] : last.seconds.groups) {
        step.overlapped.push_back({place, group, Operation::all_reduce, at_end, seconds});
        at_end += seconds;
      }
      step.overlapped.push_back(
          {.place = place, .start = at_end, .seconds = last.seconds.compute()});
      const double own = iteration(step, place) + rank.exposed;
      if (own + last.seconds.total() > compute_end + around) {
        compute_end = own, around = last.seconds.total();
        step.communication = groups;
        step.exposed_communication = rank.exposed + rank.messages;
        for (const auto& [group, seconds] : rank.busy.groups) step.exposed_communication += seconds;
      }
      step.ranks.push_back(rank);
    }
    step.seconds = compute_end + around;
    for (const auto& [group, seconds] : step.communication) {
      if (crosses_nodes(group)) step.across.insert(group);
    }
  }

  bool crosses_nodes(const std::string& group) const {
    if (group == "pipeline") {
      return !std::all_of(pipeline_.begin(), pipeline_.end(),
                          [&](int rank) { return same_node(rank, pipeline_.front()); });
    }
    return std::any_of(pipeline_.begin(), pipeline_.end(), [&](int rank) {
      return group_shape(mesh_, ends_of(schedule_), group, rank, machine_.devices_per_node)
                 .nodes() > 1;
    });
  }

  const Config& config_;
  const Architecture& architecture_;
  const Machine& machine_;
  const Assumptions& assumptions_;
  const WhatIf& what_if_;
  Mesh mesh_;
  Schedule schedule_;
  RankPlanner planner_;
  GroupShape within_layers_;  // the tensor group
  std::vector<int> rank_of_;  // place in the pipeline of each stage
  bool overlaps_ = false;     // whether iterations overlap
  double steady_ = 0;         // iteration time of an asynchronous schedule
  std::vector<int> pipeline_ = mesh_.pipeline(0);
  std::map<std::vector<std::int64_t>, std::size_t> known_;
  std::vector<RankCosts> traced_;
  std::vector<double> flops_;       // of each traced rank, per micro-batch
  std::vector<std::size_t> costs_;  // index in traced_ by place
  std::vector<std::vector<const ActionCost*>> lists_;
};

}  // namespace

double SimulatedStep::tflops_per_device() const {
  return model_flops / seconds / static_cast<double>(world_size) / 1e12;
}
double SimulatedStep::mfu() const {
  return tflops_per_device() * 1e12 / peak_flops;
}
double SimulatedStep::hfu() const {
  return mfu() * hardware_flops / model_flops;
}

SimulatedStep simulate_time(const Config& config, const Architecture& architecture,
                            const Machine& machine, const Assumptions& assumptions,
                            const WhatIf& what_if) {
  return StepSimulator(config, architecture, machine, assumptions, what_if).run();
}

SimulatedStep simulate_step(const Config& config, const Architecture& architecture,
                            const Machine& machine, const Assumptions& assumptions,
                            const WhatIf& what_if) {
  SimulatedStep step = simulate_time(config, architecture, machine, assumptions, what_if);
  step.peak_bytes = planned_peak(config, architecture).value_or(0);
  return step;
}

bool is_crowded(int ranks, const Machine& machine) {
  return machine.nodes > 0 && ranks > machine.nodes * machine.devices_per_node;
}

SimulatedStep simulate_crowded(const Config& config, const Architecture& architecture,
                               const Machine& machine, const Assumptions& assumptions,
                               const WhatIf& what_if) {
  Machine uncrowded = machine;
  uncrowded.devices_per_node = std::max(config.world_size(), machine.devices_per_node);
  uncrowded.nodes = 1;
  WhatIf free = what_if;
  free.free_messages = true;
  SimulatedStep step = simulate_step(config, architecture, uncrowded, assumptions, free);
  step.shared_devices = machine.nodes * machine.devices_per_node;
  double computed = 0;
  for (const RankSeconds& rank : step.ranks) computed += rank.busy.compute();
  computed *= static_cast<double>(step.world_size) / static_cast<double>(step.ranks.size());
  step.shared_seconds = std::max(step.seconds, computed / static_cast<double>(step.shared_devices));
  return step;
}

}  // namespace trident
