#include "scheduler/timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/files/json.h"

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
    case EventCategory::token_dispatch:
      return "token_dispatch";
    case EventCategory::token_combine:
      return "token_combine";
    case EventCategory::context_parallel:
      return "context_parallel";
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
  events.reserve(count);  // may be millions
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
  for (const auto& [traced, begin, end, memory] : trace.events) {
    if (is_post(traced.step)) continue;
    LoweredAction action = traced;
    if (action.peer >= 0 && !pipeline.empty()) action.peer = pipeline[action.peer];
    const bool compute = action.step == Step::compute;
    events.push_back(
        {rank, to_string(action), compute ? category_of(action.kind) : EventCategory::transfer,
         1e-3 * static_cast<double>(begin.wall_ns - zero_wall_ns),
         1e-3 * static_cast<double>(end.wall_ns - begin.wall_ns), action.stage, action.microbatch});
    events.back().memory = memory;
    if (compute) continue;
    events.back().group = "pipeline";
    events.back().ranks = {action.peer};
  }
  return events;
}

namespace {

// A separate thread for each communication category of each group, in the order of the lanes.
class Threads {
 public:
  explicit Threads(const std::vector<TimelineEvent>& events) {
    for (const TimelineEvent& event : events) {
      if (is_communication(event.category)) numbers_[key_of(event)] = 0;
    }
    int next = 1;
    for (auto& [key, number] : numbers_) number = next++;
  }
  int of(const TimelineEvent& event) const {
    return is_communication(event.category) ? numbers_.at(key_of(event)) : 0;
  }
  // "tensor_parallel", "gradient_reduction, data".
  std::vector<std::pair<int, std::string>> names() const {
    std::vector<std::pair<int, std::string>> names;
    for (const auto& [key, number] : numbers_) {
      const std::string name = to_string(EventCategory(key.first));
      names.emplace_back(number, key.second.empty() ? name : name + ", " + key.second);
    }
    return names;
  }

 private:
  using Key = std::pair<int, std::string>;  // category, group
  static Key key_of(const TimelineEvent& event) {
    return {static_cast<int>(event.category), event.group};
  }
  std::map<Key, int> numbers_;
};

// An arrow from the event that makes an output to the event that consumes it.
struct Flow {
  const TimelineEvent* from = nullptr;
  const TimelineEvent* to = nullptr;
};

// The arrows from each message of a schedule to the compute that consumes it. Where no messages are
// drawn (one pipeline), from compute to compute.
std::vector<Flow> flows_of(const std::vector<TimelineEvent>& events) {
  const auto gives_forward = [](const TimelineEvent& event) {
    return event.category == EventCategory::forward;
  };
  const auto gives_backward = [](const TimelineEvent& event) {
    return event.category == EventCategory::backward ||
           event.category == EventCategory::backward_input;
  };
  using Key = std::tuple<int, int, int, bool>;  // row, stage, micro-batch, forward
  std::map<Key, const TimelineEvent*> consumers;
  std::map<std::tuple<int, int, bool>, const TimelineEvent*> anywhere;
  for (const TimelineEvent& event : events) {
    if (!gives_forward(event) && !gives_backward(event)) continue;
    consumers[{event.rank, event.stage, event.microbatch, gives_forward(event)}] = &event;
    anywhere[{event.stage, event.microbatch, gives_forward(event)}] = &event;
  }
  std::vector<Flow> flows;
  bool messages = false;
  const auto add = [&](const TimelineEvent& from, const TimelineEvent* to) {
    if (to != nullptr && to->start_us >= from.start_us) flows.push_back({&from, to});
  };
  for (const TimelineEvent& event : events) {
    if (event.category != EventCategory::transfer || !event.name.starts_with("send of ") ||
        event.ranks.size() != 1) {
      continue;
    }
    messages = true;
    const std::string served = event.name.substr(8, event.name.find(' ', 8) - 8);
    const bool forward = served.find('F') != std::string::npos;
    const auto to = consumers.find(
        {event.ranks[0], event.stage + (forward ? 1 : -1), event.microbatch, forward});
    add(event, to == consumers.end() ? nullptr : to->second);
  }
  if (messages) return flows;
  for (const TimelineEvent& event : events) {
    const bool forward = gives_forward(event);
    if (!forward && !gives_backward(event)) continue;
    const auto to = anywhere.find({event.stage + (forward ? 1 : -1), event.microbatch, forward});
    if (to != anywhere.end() && to->second->rank != event.rank) add(event, to->second);
  }
  return flows;
}

}  // namespace

std::string chrome_trace(const Timeline& timeline) {
  int ranks = static_cast<int>(timeline.rows.size());
  for (const auto& event : timeline.events) ranks = std::max(ranks, event.rank + 1);
  const Threads threads(timeline.events);
  // There may be millions of events, so they are written as text and not kept as JSON values.
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
    for (const auto& [number, thread] : threads.names()) {
      metadata("thread_name", rank, number, "\"name\":" + quoted(thread));
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
         event.rank, threads.of(event), arguments.empty() ? "" : ",\"args\":{" + arguments + "}");
    if (event.memory < 0) continue;
    line("{{\"name\":\"memory\",\"ph\":\"C\",\"ts\":{},\"pid\":{},\"args\":{{\"bytes\":{}}}}}",
         event.start_us + event.duration_us, event.rank, event.memory);
  }
  std::size_t id = 0;
  for (const Flow& flow : flows_of(timeline.events)) {
    // A message's arrow starts at its beginning, as the send may end after the message has arrived.
    // Any other arrow starts at the end of the compute.
    const bool message = is_communication(flow.from->category);
    line(
        "{{\"name\":\"handed on\",\"cat\":\"flow\",\"ph\":\"s\",\"id\":{},\"ts\":{},\"pid\":{},"
        "\"tid\":{}}}",
        ++id, flow.from->start_us + (message ? 0 : 0.999 * flow.from->duration_us), flow.from->rank,
        threads.of(*flow.from));
    line(
        "{{\"name\":\"handed on\",\"cat\":\"flow\",\"ph\":\"f\",\"bp\":\"e\",\"id\":{},\"ts\":{},"
        "\"pid\":{},\"tid\":{}}}",
        id, flow.to->start_us, flow.to->rank, threads.of(*flow.to));
  }
  return text + "],\"displayTimeUnit\":\"ms\"}\n";
}

}  // namespace trident
