#include "training/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/ledger.h"
#include "scheduler/bubble.h"

namespace trident {
namespace {

// What a rank tells about a step: plain data, moved as bytes.
struct RankReport {
  StepClock clock;
  std::int64_t events = 0;
  std::int64_t peaks[category_count] = {};
  std::int64_t peak_total = 0;
  std::int64_t sent[5] = {};
};

constexpr const char* group_names[5] = {"world", "tensor", "pipeline", "data", "embedding"};

void add_step_events(Timeline& timeline, const StepClock& clock, int rank, std::int64_t zero) {
  const auto event = [&](const char* name, EventCategory category, const ClockReading& from,
                         const ClockReading& to) {
    if (to.wall_ns <= from.wall_ns) return;
    timeline.events.push_back(
        {.rank = rank,
         .name = name,
         .category = category,
         .start_us = static_cast<double>(from.wall_ns - zero) * 1e-3,
         .duration_us = static_cast<double>(to.wall_ns - from.wall_ns) * 1e-3});
  };
  event("gradient reduction", EventCategory::all_reduce, clock.executed, clock.reduced);
  event("loss and gradient norm", EventCategory::all_reduce, clock.reduced, clock.checked);
  event("optimizer", EventCategory::optimizer, clock.checked, clock.updated);
  event("weight all-gather", EventCategory::all_reduce, clock.updated, clock.end);
}

}  // namespace

std::int64_t report_bytes(std::int64_t actions) {
  return static_cast<std::int64_t>(sizeof(RankReport)) +
         actions * static_cast<std::int64_t>(sizeof(TracedAction));
}

Monitor::Monitor(RankModel& model, ProcessGroup group) : model_(model), group_(std::move(group)) {}

std::map<std::string, std::int64_t> Monitor::sent() const {
  const Topology& t = model_.topology();
  std::map<std::string, std::int64_t> bytes;
  const ProcessGroup* groups[5] = {&t.world, &t.tensor, &t.pipeline, &t.data, &t.embedding};
  for (int i = 0; i < 5; ++i) {
    bytes[group_names[i]] = groups[i]->defined() ? groups[i]->traffic().bytes_sent : 0;
  }
  bytes["world"] += model_.check_bytes_sent();
  return bytes;
}

void Monitor::begin() {
  before_ = sent();
}

void Monitor::end() {
  Context& context = model_.context();

  RankReport report;
  report.clock = model_.clock();
  const auto& events = model_.trace().events;
  report.events = static_cast<std::int64_t>(events.size());
  const Ledger::Figures memory = context.ledger().figures();
  std::copy(memory.peak.begin(), memory.peak.end(), report.peaks);
  report.peak_total = memory.peak_total;
  const auto after = sent();
  for (int i = 0; i < 5; ++i)
    report.sent[i] = after.at(group_names[i]) - before_.at(group_names[i]);

  std::int64_t most = 0;
  for (const auto& list : model_.executed().lists) most = std::max(most, std::ssize(list));
  const std::int64_t bytes = report_bytes(most);
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(bytes));
  std::memcpy(packed.data(), &report, sizeof report);
  std::memcpy(packed.data() + sizeof report, events.data(), events.size() * sizeof(TracedAction));
  Ended& step = ended_.emplace_back();
  step.executed = &model_.executed();
  step.sent = context.from_host<std::uint8_t>({bytes}, packed, Category::communication);
  if (group_.rank() == 0) {
    step.all = context.empty({bytes * group_.size()}, DType::u8, Category::communication);
  }
  step.work = group_.gather(context, step.sent, step.all, 0, Async::yes);
}

std::pair<Schedule, std::vector<ExecutionTrace>> Monitor::joined(
    const std::vector<int>& pipeline) const {
  Schedule schedule = recent_.front().executed->schedule;
  for (auto& actions : schedule.ranks) actions.clear();
  std::vector<ExecutionTrace> traces(pipeline.size());
  int first = 0;  // micro-batch of the iteration, counted from the first of these
  for (const Ran& ran : recent_) {
    const Schedule& part = ran.executed->schedule;
    schedule.microbatches = std::max(schedule.microbatches, first + part.microbatches);
    for (std::size_t p = 0; p < pipeline.size(); ++p) {
      for (Action action : part.ranks[p]) {
        action.microbatch += first;
        schedule.ranks[p].push_back(action);
      }
      for (TracedAction event : ran.traces[static_cast<std::size_t>(pipeline[p])].events) {
        event.action.microbatch += first;
        traces[p].events.push_back(event);
      }
    }
    first += model_.schedule().microbatches;
  }
  return {std::move(schedule), std::move(traces)};
}

StepFigures Monitor::collect(bool timeline) {
  Context& context = model_.context();
  const Ended step = std::move(ended_.front());
  ended_.pop_front();
  step.work.wait(context);
  context.synchronize();
  if (group_.rank() != 0) return {};
  const std::vector<std::uint8_t> gathered = context.to_host<std::uint8_t>(step.all);
  const RankGrid& grid = model_.topology().grid;

  StepFigures figures;
  std::vector<RankReport> reports(static_cast<std::size_t>(group_.size()));
  std::vector<ExecutionTrace> traces(reports.size());
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const std::uint8_t* at = gathered.data() + r * (gathered.size() / reports.size());
    std::memcpy(&reports[r], at, sizeof(RankReport));
    traces[r].events.resize(static_cast<std::size_t>(reports[r].events));
    std::memcpy(traces[r].events.data(), at + sizeof(RankReport),
                traces[r].events.size() * sizeof(TracedAction));
    for (int i = 0; i < 5; ++i) figures.bytes_sent[group_names[i]] += reports[r].sent[i];
    const auto largest = [&](const std::string& name, std::int64_t value) {
      figures.peak_memory[name] = std::max(figures.peak_memory[name], value);
    };
    for (int i = 0; i < category_count; ++i) {
      largest(std::string(name_of(static_cast<Category>(i))), reports[r].peaks[i]);
    }
    largest("total", reports[r].peak_total);
  }

  recent_.push_back({step.executed, traces});
  const int per_iteration = model_.schedule().microbatches;
  const int wanted = model_.schedule().asynchronous()
                         ? (4 * model_.schedule().stages + per_iteration - 1) / per_iteration
                         : 1;
  while (std::ssize(recent_) > wanted) recent_.pop_front();
  figures.rank_bubble_ratio.assign(static_cast<std::size_t>(grid.size(Axis::pipeline)), 0);
  const int pipelines = grid.size(Axis::data) * grid.size(Axis::tensor);
  for (int data = 0; data < grid.size(Axis::data); ++data) {
    for (int tensor = 0; tensor < grid.size(Axis::tensor); ++tensor) {
      std::vector<int> pipeline;
      for (int p = 0; p < grid.size(Axis::pipeline); ++p) {
        pipeline.push_back(grid.rank({.tensor = tensor, .data = data, .pipeline = p}));
      }
      const auto [schedule, ran] = joined(pipeline);
      const MeasuredBubble bubble = measure_bubble(schedule, ran);
      figures.bubble_ratio += bubble.replayed.ratio / pipelines;
      figures.bubble_ratio_wall += bubble.wall.ratio / pipelines;
      figures.bubble_predicted += bubble.predicted.bubble.ratio / pipelines;
      for (std::size_t p = 0; p < bubble.replayed.rank_ratio.size(); ++p) {
        figures.rank_bubble_ratio[p] += bubble.replayed.rank_ratio[p] / pipelines;
      }
      if (timeline && data == 0 && tensor == 0) {
        std::vector<ExecutionTrace> alone;
        for (const int r : pipeline) alone.push_back(traces[static_cast<std::size_t>(r)]);
        const Schedule& drawn = step.executed->schedule;
        figures.predicted.events =
            timeline_events(drawn, measure_bubble(drawn, alone).predicted, 1e6);
      }
    }
  }

  if (timeline) {
    std::int64_t zero = reports[0].clock.begin.wall_ns;
    for (const RankReport& r : reports) zero = std::min(zero, r.clock.begin.wall_ns);
    for (int p = 0; p < grid.size(Axis::pipeline); ++p) {
      figures.predicted.rows.push_back(fmt::format("pp {}", p));
    }
    for (int r = 0; r < group_.size(); ++r) {
      const Coordinates at = grid.coordinates(r);
      figures.timeline.rows.push_back(
          fmt::format("rank {} (dp {}, tp {}, pp {})", r, at.data, at.tensor, at.pipeline));
      auto list = timeline_events(traces[static_cast<std::size_t>(r)], r, zero);
      figures.timeline.events.insert(figures.timeline.events.end(), list.begin(), list.end());
      add_step_events(figures.timeline, reports[static_cast<std::size_t>(r)].clock, r, zero);
    }
  }
  return figures;
}

}  // namespace trident
