#include "engine/step_timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "parallel/collectives/descriptor.h"

namespace trident {
namespace {

std::string_view name_of(Operation what, Purpose purpose) {
  switch (purpose) {
    case Purpose::none:
      break;
    case Purpose::dispatch:
      return "dispatch";
    case Purpose::combine:
      return "combine";
  }
  return trident::name_of(what);
}

class Drawing {
 public:
  Drawing(const Topology& topology, std::int64_t zero)
      : topology_(topology), groups_(topology.traffic_groups()), zero_(zero) {}

  void draw(int rank, const StepClock& clock, const ExecutionTrace& trace,
            const std::vector<LoggedOperation>& operations) {
    const Mesh& mesh = topology_.mesh;
    const std::vector<int> at = mesh.coordinates(rank);
    std::vector<std::string> place;
    for (std::size_t i = 0; i < at.size(); ++i) {
      place.push_back(fmt::format("{} {}", mesh.axes()[i].name, at[i]));
    }
    timeline_.rows.push_back(fmt::format("rank {} ({})", rank, fmt::join(place, ", ")));
    auto events = timeline_events(trace, rank, zero_, mesh.pipeline(rank));
    for (const LoggedOperation& operation : operations) {
      if (!add_to_send(events, operation)) events.push_back(event(rank, operation));
    }
    if (clock.updated.wall_ns > clock.checked.wall_ns) {
      events.push_back({rank, "optimizer", EventCategory::optimizer, us(clock.checked.wall_ns),
                        us(clock.updated.wall_ns) - us(clock.checked.wall_ns)});
    }
    timeline_.events.insert(timeline_.events.end(), events.begin(), events.end());
  }

  Timeline take() { return std::move(timeline_); }

 private:
  double us(std::int64_t wall_ns) const { return 1e-3 * static_cast<double>(wall_ns - zero_); }

  TimelineEvent event(int rank, const LoggedOperation& operation) const {
    const TrafficGroup& group = groups_[operation.group];
    const bool message = operation.peer >= 0;
    const std::vector<int> ranks =
        message ? std::vector{static_cast<int>(operation.peer)} : ranks_of(topology_, group, rank);
    const auto what = static_cast<Operation>(operation.operation);
    return {.rank = rank,
            .name = message ? fmt::format("send to rank {}", operation.peer)
                            : fmt::format("{} of {} ranks {}", name_of(what, operation.purpose),
                                          group.name, rank_list(ranks)),
            .category = category_of(group.group, what, operation.purpose),
            .start_us = us(operation.begin_ns),
            .duration_us = 1e-3 * static_cast<double>(operation.end_ns - operation.begin_ns),
            .group = group.name,
            .ranks = ranks,
            .bytes = operation.bytes};
  }

  // Adds the bytes of a message to the schedule's send action that sent it; false if there is none.
  bool add_to_send(std::vector<TimelineEvent>& events, const LoggedOperation& operation) const {
    if (groups_[operation.group].group != Group::pipeline || operation.peer < 0) return false;
    const double begin = us(operation.begin_ns), end = us(operation.end_ns);
    for (TimelineEvent& one : events) {
      if (one.category != EventCategory::transfer || !one.name.starts_with("send of") ||
          one.ranks != std::vector{operation.peer} || begin < one.start_us ||
          end > one.start_us + one.duration_us) {
        continue;
      }
      one.bytes = std::max<std::int64_t>(0, one.bytes) + operation.bytes;
      return true;
    }
    return false;
  }

  const Topology& topology_;
  std::vector<TrafficGroup> groups_;
  std::int64_t zero_;
  Timeline timeline_;
};

}  // namespace

EventCategory category_of(const std::optional<Group>& group, Operation what, Purpose purpose) {
  if (!group) return EventCategory::all_reduce;
  if (*group == Group::pipeline) return EventCategory::transfer;
  if (*group == Group::tensor) return EventCategory::tensor_parallel;
  if (*group == Group::context || *group == Group::context_heads || *group == Group::context_ring) {
    return EventCategory::context_parallel;
  }
  if (*group == Group::exchange) {  // the gather of row counts is drawn with the dispatches
    return purpose == Purpose::combine ? EventCategory::token_combine
                                       : EventCategory::token_dispatch;
  }
  if (*group == Group::expert || *group == Group::expert_tensor) return EventCategory::all_reduce;
  const bool adds = what == Operation::all_reduce || what == Operation::reduce_scatter ||
                    what == Operation::reduce;
  return adds ? EventCategory::gradient_reduction : EventCategory::weight_gather;
}

Timeline step_timeline(const Topology& topology, const std::vector<StepClock>& clocks,
                       const std::vector<ExecutionTrace>& traces,
                       const std::vector<std::vector<LoggedOperation>>& operations) {
  std::int64_t zero = clocks[0].begin.wall_ns;
  for (const StepClock& clock : clocks) zero = std::min(zero, clock.begin.wall_ns);
  Drawing drawing(topology, zero);
  for (std::size_t r = 0; r < clocks.size(); ++r) {
    drawing.draw(static_cast<int>(r), clocks[r], traces[r], operations[r]);
  }
  return drawing.take();
}

}  // namespace trident
