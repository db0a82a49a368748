#include "training/engine/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "core/ledger.h"
#include "scheduler/bubble.h"
#include "training/engine/step_timeline.h"

namespace trident {
namespace {

// A place in a message that holds none.
constexpr LoggedOperation no_operation{.group = 255};

// What a rank tells about a step: plain data, moved as bytes. Behind it come the bytes sent by each
// traffic group, and the trace.
struct RankReport {
  StepClock clock;
  std::int64_t events = 0;
  std::int64_t peaks[category_count] = {};
  std::int64_t peak_total = 0;
};

}  // namespace

std::int64_t report_bytes(std::int64_t actions, std::size_t groups) {
  return static_cast<std::int64_t>(sizeof(RankReport) + groups * sizeof(std::int64_t)) +
         actions * static_cast<std::int64_t>(sizeof(TracedAction));
}

Monitor::Monitor(const Stepper& stepper, ProcessGroup group)
    : stepper_(stepper), group_(std::move(group)), counted_(stepper.topology().traffic_groups()) {
  for (std::uint8_t i = 0; i < counted_.size(); ++i) {
    if (counted_[i].members.defined()) counted_[i].members.log(log_, i);
  }
  stepper_.check_group().log(log_, 0);
}

std::vector<std::int64_t> Monitor::sent() const {
  std::vector<std::int64_t> bytes;
  for (const TrafficGroup& group : counted_) {
    bytes.push_back(group.members.defined() ? group.members.traffic().bytes_sent : 0);
  }
  bytes.front() += stepper_.check_bytes_sent();  // the world's
  return bytes;
}

void Monitor::begin(bool drawn) {
  before_ = sent();
  drawn_ = drawn;
  if (drawn) log_->start();
}

void Monitor::end() {
  Context& context = stepper_.context();

  RankReport report;
  report.clock = stepper_.clock();
  const auto& events = stepper_.trace().events;
  report.events = static_cast<std::int64_t>(events.size());
  const Ledger::Figures memory = context.ledger().figures();
  std::copy(memory.peak.begin(), memory.peak.end(), report.peaks);
  report.peak_total = memory.peak_total;
  std::vector<std::int64_t> bytes_sent = sent();
  for (std::size_t i = 0; i < bytes_sent.size(); ++i) bytes_sent[i] -= before_[i];

  std::int64_t most = 0;
  for (const auto& list : stepper_.executed().lists) most = std::max(most, std::ssize(list));
  const std::int64_t bytes = report_bytes(most, counted_.size());
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(bytes));
  std::uint8_t* at = packed.data();
  std::memcpy(at, &report, sizeof report);
  std::memcpy(at += sizeof report, bytes_sent.data(), counted_.size() * sizeof(bytes_sent[0]));
  std::memcpy(at += counted_.size() * sizeof(bytes_sent[0]), events.data(),
              events.size() * sizeof(TracedAction));
  Ended& step = ended_.emplace_back();
  step.drawn = drawn_;
  if (drawn_) step.operations = log_->stop();
  step.executed = &stepper_.executed();
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
    first += stepper_.schedule().microbatches;
  }
  return {std::move(schedule), std::move(traces)};
}

std::vector<std::vector<LoggedOperation>> Monitor::gather(const std::vector<LoggedOperation>& own,
                                                          std::int64_t bytes) {
  Context& context = stepper_.context();
  const auto count = static_cast<std::int64_t>(own.size());
  std::int64_t most = 0;
  {
    const Tensor largest =
        context.from_host<std::int64_t>({1}, std::span(&count, 1), Category::communication);
    group_.all_reduce(context, largest, ReduceOp::maximum);
    most = context.to_host<std::int64_t>(largest).front();
  }
  constexpr auto size = static_cast<std::int64_t>(sizeof(LoggedOperation));
  const std::int64_t piece = std::max<std::int64_t>(1, bytes / size);
  std::vector<std::vector<LoggedOperation>> all(static_cast<std::size_t>(group_.size()));
  for (std::int64_t begin = 0; begin < most; begin += piece) {
    std::vector<LoggedOperation> part(static_cast<std::size_t>(piece), no_operation);
    const std::int64_t end = std::min(count, begin + piece);
    if (begin < end) std::copy(own.begin() + begin, own.begin() + end, part.begin());
    const Tensor sent = context.from_host<std::uint8_t>(
        {piece * size},
        std::span(reinterpret_cast<const std::uint8_t*>(part.data()),
                  part.size() * sizeof(part[0])),
        Category::communication);
    Tensor gathered;
    if (group_.rank() == 0) {
      gathered = context.empty({piece * size * group_.size()}, DType::u8, Category::communication);
    }
    group_.gather(context, sent, gathered, 0);
    context.synchronize();
    if (group_.rank() != 0) continue;
    const std::vector<std::uint8_t> packed = context.to_host<std::uint8_t>(gathered);
    for (std::size_t r = 0; r < all.size(); ++r) {
      std::memcpy(part.data(), packed.data() + r * part.size() * sizeof(part[0]),
                  part.size() * sizeof(part[0]));
      std::copy_if(part.begin(), part.end(), std::back_inserter(all[r]),
                   [](const LoggedOperation& one) { return one.group != no_operation.group; });
    }
  }
  return all;
}

StepFigures Monitor::collect() {
  Context& context = stepper_.context();
  Ended step = std::move(ended_.front());
  ended_.pop_front();
  step.work.wait(context);
  context.synchronize();
  const bool timeline = step.drawn;
  const std::int64_t bytes = step.sent.bytes();
  std::vector<std::uint8_t> gathered;
  if (group_.rank() == 0) gathered = context.to_host<std::uint8_t>(step.all);
  step.sent = step.all = Tensor();
  std::vector<std::vector<LoggedOperation>> operations;
  if (timeline) operations = gather(step.operations, bytes);
  if (group_.rank() != 0) return {};
  const Mesh& mesh = stepper_.topology().mesh;

  StepFigures figures;
  std::vector<RankReport> reports(static_cast<std::size_t>(group_.size()));
  std::vector<ExecutionTrace> traces(reports.size());
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const std::uint8_t* at = gathered.data() + r * (gathered.size() / reports.size());
    std::memcpy(&reports[r], at, sizeof(RankReport));
    at += sizeof(RankReport);
    for (const TrafficGroup& group : counted_) {
      std::int64_t sent = 0;
      std::memcpy(&sent, at, sizeof sent);
      at += sizeof sent;
      figures.bytes_sent[group.name] += sent;
    }
    traces[r].events.resize(static_cast<std::size_t>(reports[r].events));
    std::memcpy(traces[r].events.data(), at, traces[r].events.size() * sizeof(TracedAction));
    const auto largest = [&](const std::string& name, std::int64_t value) {
      figures.peak_memory[name] = std::max(figures.peak_memory[name], value);
    };
    for (int i = 0; i < category_count; ++i) {
      largest(std::string(name_of(static_cast<Category>(i))), reports[r].peaks[i]);
    }
    largest("total", reports[r].peak_total);
  }

  recent_.push_back({step.executed, traces});
  const int per_iteration = stepper_.schedule().microbatches;
  const int wanted = stepper_.schedule().asynchronous()
                         ? (4 * stepper_.schedule().stages + per_iteration - 1) / per_iteration
                         : 1;
  while (std::ssize(recent_) > wanted) recent_.pop_front();
  const int stages = mesh.size(Group::pipeline);
  figures.rank_bubble_ratio.assign(static_cast<std::size_t>(stages), 0);
  const int pipelines = mesh.world_size() / stages;
  for (int first = 0; first < mesh.world_size(); ++first) {
    if (mesh.place(first, Group::pipeline) != 0) continue;
    const std::vector<int> pipeline = mesh.group(first, Group::pipeline);
    const auto [schedule, ran] = joined(pipeline);
    const MeasuredBubble bubble = measure_bubble(schedule, ran);
    figures.bubble_ratio += bubble.replayed.ratio / pipelines;
    figures.bubble_ratio_wall += bubble.wall.ratio / pipelines;
    figures.bubble_predicted += bubble.predicted.bubble.ratio / pipelines;
    for (std::size_t p = 0; p < bubble.replayed.rank_ratio.size(); ++p) {
      figures.rank_bubble_ratio[p] += bubble.replayed.rank_ratio[p] / pipelines;
    }
    if (timeline && first == 0) {
      std::vector<ExecutionTrace> alone;
      for (const int r : pipeline) alone.push_back(traces[static_cast<std::size_t>(r)]);
      const Schedule& drawn = step.executed->schedule;
      figures.predicted.events =
          timeline_events(drawn, measure_bubble(drawn, alone).predicted, 1e6);
    }
  }

  if (timeline) {
    for (int p = 0; p < stages; ++p) {
      figures.predicted.rows.push_back(fmt::format("pp {}", p));
    }
    std::vector<StepClock> clocks;
    for (const RankReport& r : reports) clocks.push_back(r.clock);
    figures.timeline = step_timeline(stepper_.topology(), clocks, traces, operations);
  }
  return figures;
}

}  // namespace trident
