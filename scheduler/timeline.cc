#include "scheduler/timeline.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace trident {

namespace {

EventCategory category_of(Kind kind) {
  switch (kind) {
    case Kind::forward:
      return EventCategory::forward;
    case Kind::backward:
      return EventCategory::backward;
    case Kind::backward_input:
      return EventCategory::backward_input;
    case Kind::backward_weight:
      return EventCategory::backward_weight;
  }
  return EventCategory::forward;
}

bool is_post(Step step) {
  return step == Step::post_receive_forward || step == Step::post_receive_backward;
}

using Json = nlohmann::ordered_json;

Json metadata(const char* what, int pid, int tid, Json arguments) {
  return {{"name", what}, {"ph", "M"}, {"pid", pid}, {"tid", tid}, {"args", std::move(arguments)}};
}

}  // namespace

const char* to_string(EventCategory category) {
  switch (category) {
    case EventCategory::forward:
      return "forward";
    case EventCategory::backward:
      return "backward";
    case EventCategory::backward_input:
      return "backward_input";
    case EventCategory::backward_weight:
      return "backward_weight";
    case EventCategory::optimizer:
      return "optimizer";
    case EventCategory::transfer:
      return "transfer";
    case EventCategory::all_reduce:
      return "all_reduce";
  }
  return "?";
}

bool is_communication(EventCategory category) {
  return category == EventCategory::transfer || category == EventCategory::all_reduce;
}

std::vector<TimelineEvent> timeline_events(const Schedule& schedule, const Simulation& simulation,
                                           double us_per_unit) {
  std::vector<TimelineEvent> events;
  size_t count = 0;
  for (const auto& actions : schedule.ranks) count += actions.size();
  events.reserve(count);  // millions
  for (int rank = 0; rank < schedule.stages; ++rank) {
    for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      const auto [start, end] = simulation.actions[rank][i];
      events.push_back({rank, to_string(action), category_of(action.kind), start * us_per_unit,
                        (end - start) * us_per_unit, action.stage, action.microbatch});
    }
  }
  return events;
}

std::vector<TimelineEvent> transfer_events(const Schedule& schedule, const Simulation& simulation,
                                           double transfer, double us_per_unit) {
  std::vector<TimelineEvent> events;
  if (transfer == 0.0) return events;
  std::vector<int> rank_of(schedule.total_stages());
  for (int stage = 0; stage < schedule.total_stages(); ++stage) {
    rank_of[stage] = schedule.rank_of_stage(stage);
  }
  for (int rank = 0; rank < schedule.stages; ++rank) {
    const auto& actions = schedule.ranks[rank];
    for (size_t i = 0; i < actions.size(); ++i) {
      const Action& action = actions[i];
      const int to = action.stage + (action.kind == Kind::forward ? 1 : -1);
      if (action.kind == Kind::backward_weight || to < 0 || to >= schedule.total_stages() ||
          rank_of[to] == rank) {
        continue;
      }
      const double made = simulation.actions[rank][action.fused ? i + 1 : i].end;
      events.push_back({rank_of[to], to_string(action) + " to rank " + std::to_string(rank_of[to]),
                        EventCategory::transfer, made * us_per_unit, transfer * us_per_unit, to,
                        action.microbatch});
    }
  }
  return events;
}

std::vector<TimelineEvent> timeline_events(const ExecutionTrace& trace, int rank,
                                           int64_t zero_wall_ns) {
  std::vector<TimelineEvent> events;
  for (const auto& [action, begin, end] : trace.events) {
    if (is_post(action.step)) continue;
    const bool compute = action.step == Step::compute;
    events.push_back(
        {rank, to_string(action), compute ? category_of(action.kind) : EventCategory::transfer,
         1e-3 * static_cast<double>(begin.wall_ns - zero_wall_ns),
         1e-3 * static_cast<double>(end.wall_ns - begin.wall_ns), action.stage, action.microbatch});
  }
  return events;
}

std::string chrome_trace(const Timeline& timeline) {
  int ranks = static_cast<int>(timeline.rows.size());
  for (const auto& event : timeline.events) ranks = std::max(ranks, event.rank + 1);
  Json events = Json::array();
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name =
        rank < std::ssize(timeline.rows) ? timeline.rows[rank] : "rank " + std::to_string(rank);
    events.push_back(metadata("process_name", rank, 0, {{"name", name}}));
    events.push_back(metadata("process_sort_index", rank, 0, {{"sort_index", rank}}));
    events.push_back(metadata("thread_name", rank, 0, {{"name", "compute"}}));
    events.push_back(metadata("thread_name", rank, 1, {{"name", "communication"}}));
  }
  for (const auto& event : timeline.events) {
    Json line = {{"name", event.name},
                 {"cat", to_string(event.category)},
                 {"ph", "X"},
                 {"ts", event.start_us},
                 {"dur", event.duration_us},
                 {"pid", event.rank},
                 {"tid", is_communication(event.category) ? 1 : 0}};
    if (event.stage >= 0) line["args"]["stage"] = event.stage;
    if (event.microbatch >= 0) line["args"]["microbatch"] = event.microbatch;
    events.push_back(std::move(line));
  }
  const Json trace = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace trident
