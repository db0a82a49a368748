#include "training/step_timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/collectives/descriptor.h"

namespace trident {
namespace {

enum : std::uint8_t { world, tensor, pipeline, data, embedding };  // as in group_names

EventCategory category_of(const LoggedOperation& operation) {
  const auto what = static_cast<Operation>(operation.operation);
  if (operation.group == pipeline) return EventCategory::transfer;
  if (operation.group == tensor) return EventCategory::tensor_parallel;
  if (operation.group != data) return EventCategory::all_reduce;
  const bool adds = what == Operation::all_reduce || what == Operation::reduce_scatter ||
                    what == Operation::reduce;
  return adds ? EventCategory::gradient_reduction : EventCategory::weight_gather;
}

class Drawing {
 public:
  Drawing(const Topology& topology, const Schedule& schedule, std::int64_t zero)
      : grid_(topology.grid), schedule_(schedule), zero_(zero) {}

  void draw(int rank, const StepClock& clock, const ExecutionTrace& trace,
            const std::vector<LoggedOperation>& operations) {
    const Coordinates at = grid_.coordinates(rank);
    timeline_.rows.push_back(
        fmt::format("rank {} (dp {}, tp {}, pp {})", rank, at.data, at.tensor, at.pipeline));
    auto events = timeline_events(trace, rank, zero_, grid_.group(rank, Axis::pipeline));
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

  std::vector<int> ranks_of(int rank, const LoggedOperation& operation) const {
    if (operation.peer >= 0) return {operation.peer};
    if (operation.group == tensor) return grid_.group(rank, Axis::tensor);
    if (operation.group == pipeline) return grid_.group(rank, Axis::pipeline);
    if (operation.group == data) return grid_.group(rank, Axis::data);
    if (operation.group == embedding) {
      return grid_.embedding_group(rank, schedule_.rank_of_stage(0),
                                   schedule_.rank_of_stage(schedule_.total_stages() - 1));
    }
    std::vector<int> all;
    for (int r = 0; r < grid_.world_size(); ++r) all.push_back(r);
    return all;
  }

  TimelineEvent event(int rank, const LoggedOperation& operation) const {
    const std::vector<int> ranks = ranks_of(rank, operation);
    const std::string_view what = name_of(static_cast<Operation>(operation.operation));
    return {.rank = rank,
            .name = operation.peer >= 0
                        ? fmt::format("send to rank {}", operation.peer)
                        : fmt::format("{} of {} ranks {}", what, group_names[operation.group],
                                      rank_list(ranks)),
            .category = category_of(operation),
            .start_us = us(operation.begin_ns),
            .duration_us = 1e-3 * static_cast<double>(operation.end_ns - operation.begin_ns),
            .group = group_names[operation.group],
            .ranks = ranks,
            .bytes = operation.bytes};
  }

  // A message that an action of the schedule has sent is shown by that action.
  bool add_to_send(std::vector<TimelineEvent>& events, const LoggedOperation& operation) const {
    if (operation.group != pipeline || operation.peer < 0) return false;
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

  const RankGrid& grid_;
  const Schedule& schedule_;
  std::int64_t zero_;
  Timeline timeline_;
};

}  // namespace

std::array<const ProcessGroup*, 5> logged_groups(const Topology& t) {
  return {&t.world, &t.tensor, &t.pipeline, &t.data, &t.embedding};
}

Timeline step_timeline(const Topology& topology, const Schedule& schedule,
                       const std::vector<StepClock>& clocks,
                       const std::vector<ExecutionTrace>& traces,
                       const std::vector<std::vector<LoggedOperation>>& operations) {
  std::int64_t zero = clocks[0].begin.wall_ns;
  for (const StepClock& clock : clocks) zero = std::min(zero, clock.begin.wall_ns);
  Drawing drawing(topology, schedule, zero);
  for (std::size_t r = 0; r < clocks.size(); ++r) {
    drawing.draw(static_cast<int>(r), clocks[r], traces[r], operations[r]);
  }
  return drawing.take();
}

}  // namespace trident
