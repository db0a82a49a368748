#include "scheduler/timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "core/json.h"

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

std::string quoted(const std::string& text) {
  return json_text(Json(text));
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
    case EventCategory::tensor_parallel:
      return "tensor_parallel";
    case EventCategory::gradient_reduction:
      return "gradient_reduction";
    case EventCategory::weight_gather:
      return "weight_gather";
    case EventCategory::all_reduce:
      return "all_reduce";
  }
  return "?";
}

int lane_of(EventCategory category) {
  return std::max(0, static_cast<int>(category) - static_cast<int>(EventCategory::optimizer));
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
                                           int64_t zero_wall_ns, const std::vector<int>& pipeline) {
  std::vector<TimelineEvent> events;
  for (const auto& [traced, begin, end] : trace.events) {
    if (is_post(traced.step)) continue;
    LoweredAction action = traced;
    if (action.peer >= 0 && !pipeline.empty()) action.peer = pipeline[action.peer];
    const bool compute = action.step == Step::compute;
    events.push_back(
        {rank, to_string(action), compute ? category_of(action.kind) : EventCategory::transfer,
         1e-3 * static_cast<double>(begin.wall_ns - zero_wall_ns),
         1e-3 * static_cast<double>(end.wall_ns - begin.wall_ns), action.stage, action.microbatch});
    if (compute) continue;
    events.back().group = "pipeline";
    events.back().ranks = {action.peer};
  }
  return events;
}

std::string chrome_trace(const Timeline& timeline) {
  int ranks = static_cast<int>(timeline.rows.size());
  for (const auto& event : timeline.events) ranks = std::max(ranks, event.rank + 1);
  std::set<EventCategory> drawn;  // of communication
  for (const auto& event : timeline.events) {
    if (is_communication(event.category)) drawn.insert(event.category);
  }
  // Millions of events: written as text, not kept as values of a document.
  std::string text = "{\"traceEvents\":[";
  const auto line = [&]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
    if (text.back() != '[') text += ",\n";
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
  };
  const auto metadata = [&](const char* what, int pid, int tid, const std::string& arguments) {
    line("{{\"name\":\"{}\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{{}}}}}", what, pid, tid,
         arguments);
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name =
        rank < std::ssize(timeline.rows) ? timeline.rows[rank] : "rank " + std::to_string(rank);
    metadata("process_name", rank, 0, "\"name\":" + quoted(name));
    metadata("process_sort_index", rank, 0, "\"sort_index\":" + std::to_string(rank));
    metadata("thread_name", rank, 0, "\"name\":\"compute\"");
    for (const EventCategory category : drawn) {
      metadata("thread_name", rank, lane_of(category), "\"name\":" + quoted(to_string(category)));
    }
  }
  for (const auto& event : timeline.events) {
    std::string arguments;
    const auto argument = [&](const char* name, const std::string& value) {
      arguments += fmt::format("{}\"{}\":{}", arguments.empty() ? "" : ",", name, value);
    };
    if (event.stage >= 0) argument("stage", std::to_string(event.stage));
    if (event.microbatch >= 0) argument("microbatch", std::to_string(event.microbatch));
    if (!event.group.empty()) argument("group", quoted(event.group));
    if (!event.ranks.empty()) argument("ranks", fmt::format("[{}]", fmt::join(event.ranks, ",")));
    if (event.bytes >= 0) argument("bytes", std::to_string(event.bytes));
    line("{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":{},\"tid\":{}{}}}",
         quoted(event.name), to_string(event.category), event.start_us, event.duration_us,
         event.rank, lane_of(event.category),
         arguments.empty() ? "" : ",\"args\":{" + arguments + "}");
  }
  return text + "],\"displayTimeUnit\":\"ms\"}\n";
}

}  // namespace trident
