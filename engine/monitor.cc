#include "engine/monitor.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <tuple>
#include <utility>

#include "core/ledger.h"
#include "engine/step_timeline.h"
#include "scheduler/bubble.h"

namespace trident {
namespace {

// Fills unused entries of a message.
constexpr LoggedOperation no_operation{.group = 255};

// The data that a rank reports for a step, moved as bytes. The bytes sent by each traffic group,
// and the trace, follow it in the message.
struct RankReport {
  StepClock clock;
  std::int64_t events = 0;
  std::int64_t products_ns = 0, kernels_ns = 0;
  std::int64_t peaks[category_count] = {};
  std::int64_t peak_total = 0;
};

// The reports of all ranks, by rank.
struct Unpacked {
  std::vector<RankTimes> ranks;
  std::vector<ExecutionTrace> traces;
};

// Unpacks the consecutive messages of `ranks` ranks. Adds up the bytes sent, and takes the maximum
// of the memory.
Unpacked unpack(const std::vector<std::uint8_t>& gathered, std::size_t ranks,
                const std::vector<TrafficGroup>& counted, StepFigures& figures) {
  Unpacked all;
  const auto largest = [&](const std::string& name, std::int64_t value) {
    figures.peak_memory[name] = std::max(figures.peak_memory[name], value);
  };
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::uint8_t* at = gathered.data() + r * (gathered.size() / ranks);
    const auto take = [&](void* into, std::size_t bytes) {
      std::memcpy(into, at, bytes);
      at += bytes;
    };
    RankReport report;
    take(&report, sizeof report);
    for (const TrafficGroup& group : counted) {
      std::int64_t sent = 0;
      take(&sent, sizeof sent);
      figures.bytes_sent[group.name] += sent;
    }
    auto& events = all.traces.emplace_back().events;
    events.resize(static_cast<std::size_t>(report.events));
    take(events.data(), events.size() * sizeof(TracedAction));
    all.ranks.push_back({report.clock,
                         {1e-6 * static_cast<double>(report.products_ns),
                          1e-6 * static_cast<double>(report.kernels_ns)}});
    for (int i = 0; i < category_count; ++i) {
      largest(std::string(name_of(static_cast<Category>(i))), report.peaks[i]);
    }
    largest("total", report.peak_total);
  }
  return all;
}

// The first pipeline's step as simulated with its own times.
Timeline predicted_timeline(const Schedule& drawn, const std::vector<ExecutionTrace>& traces,
                            const Mesh& mesh) {
  Timeline timeline;
  std::vector<ExecutionTrace> own;
  for (const int rank : mesh.pipeline(0)) {
    own.push_back(traces[static_cast<std::size_t>(rank)]);
    timeline.rows.push_back(mesh.pipeline_place(rank));
  }
  timeline.events = timeline_events(drawn, measure_bubble(drawn, own).predicted, 1e6);
  return timeline;
}

double ms(std::int64_t nanoseconds) {
  return 1e-6 * static_cast<double>(nanoseconds);
}

// The milliseconds of a rank's own computes, by the wall clock.
double work(const ExecutionTrace& trace) {
  double sum = 0;
  for (const auto& [action, begin, end, memory] : trace.events) {
    if (action.step == Step::compute) sum += ms(end.wall_ns - begin.wall_ns);
  }
  return sum;
}

// From the first compute of a pipeline's ranks to their last, in nanoseconds by the wall clock.
std::pair<std::int64_t, std::int64_t> computed(const std::vector<ExecutionTrace>& traces,
                                               const std::vector<int>& pipeline) {
  std::int64_t first = INT64_MAX, last = INT64_MIN;
  for (const int rank : pipeline) {
    for (const auto& [action, begin, end, memory] : traces[static_cast<std::size_t>(rank)].events) {
      if (action.step != Step::compute) continue;
      first = std::min(first, begin.wall_ns);
      last = std::max(last, end.wall_ns);
    }
  }
  return first > last ? std::pair<std::int64_t, std::int64_t>{} : std::pair{first, last};
}

}  // namespace

std::int64_t report_bytes(std::int64_t actions, std::size_t groups) {
  return static_cast<std::int64_t>(sizeof(RankReport) + groups * sizeof(std::int64_t)) +
         actions * static_cast<std::int64_t>(sizeof(TracedAction));
}

Monitor::Monitor(const Stepper& stepper, ProcessGroup group)
    : stepper_(stepper), group_(std::move(group)), counted_(stepper.topology().traffic_groups()) {
  for (std::size_t i = 0; i < counted_.size(); ++i) {
    const ProcessGroup& members = counted_[i].members;
    if (members.defined()) members.log(log_, static_cast<std::uint8_t>(i));
  }
  stepper_.check_group().log(log_, 0);
}

std::vector<std::int64_t> Monitor::sent() const {
  std::vector<std::int64_t> bytes;
  for (const TrafficGroup& group : counted_) {
    bytes.push_back(group.members.defined() ? group.members.traffic().bytes_sent : 0);
  }
  bytes.front() += stepper_.check_bytes_sent();  // the world group's
  return bytes;
}

void Monitor::begin(bool drawn) {
  before_ = sent();
  // Under post-validation the stream may still run the previous step, so its kernels are not
  // discarded.
  if (!stepper_.post_validation()) take_kernel_times();
  drawn_ = drawn;
  if (drawn) log_->start();
}

std::pair<std::int64_t, std::int64_t> Monitor::take_kernel_times() {
  const KernelClock& kernels = stepper_.context().kernel_clock();
  const std::int64_t products = kernels.products_ns, others = kernels.others_ns;
  const std::pair taken{products - products_before_, others - kernels_before_};
  products_before_ = products, kernels_before_ = others;
  return taken;
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
  std::tie(report.products_ns, report.kernels_ns) = take_kernel_times();
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
  int first = 0;  // offset of the iteration's micro-batches among all
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

void Monitor::keep_recent(const IterationLists::Iteration* executed,
                          std::vector<ExecutionTrace> traces) {
  recent_.push_back({executed, std::move(traces)});
  const Schedule& schedule = stepper_.schedule();
  const int wanted = schedule.asynchronous()
                         ? (4 * schedule.stages + schedule.microbatches - 1) / schedule.microbatches
                         : 1;
  while (std::ssize(recent_) > wanted) recent_.pop_front();
}

void Monitor::measure_bubbles(StepFigures& figures) const {
  const Mesh& mesh = stepper_.topology().mesh;
  const std::vector<int> beginnings = mesh.same_stage(0);
  const auto pipelines = static_cast<int>(beginnings.size());
  for (const int first : beginnings) {
    const auto [schedule, ran] = joined(mesh.pipeline(first));
    const MeasuredBubble bubble = measure_bubble(schedule, ran);
    figures.bubble_ratio += bubble.replayed.ratio / pipelines;
    figures.bubble_ratio_wall += bubble.wall.ratio / pipelines;
    // Where iterations overlap, a rank begins the next one as soon as it has ended its own, so its
    // longest span counts.
    const Bubble& replayed = bubble.replayed;
    if (!stepper_.schedule().asynchronous()) {
      figures.replayed_ms =
          std::max(figures.replayed_ms.value_or(0),
                   1e3 * (stepper_.post_validation() ? replayed.longest_span : replayed.makespan));
    }
    figures.bubble_predicted += bubble.predicted.bubble.ratio / pipelines;
    figures.rank_bubble_ratio.resize(bubble.replayed.rank_ratio.size());
    for (std::size_t p = 0; p < bubble.replayed.rank_ratio.size(); ++p) {
      figures.rank_bubble_ratio[p] += bubble.replayed.rank_ratio[p] / pipelines;
    }
  }
}

StepFigures Monitor::collect() {
  Context& context = stepper_.context();
  Ended step = std::move(ended_.front());
  ended_.pop_front();
  step.work.wait(context);
  context.synchronize();
  const std::int64_t bytes = step.sent.bytes();
  std::vector<std::uint8_t> gathered;
  if (group_.rank() == 0) gathered = context.to_host<std::uint8_t>(step.all);
  step.sent = step.all = Tensor();
  std::vector<std::vector<LoggedOperation>> operations;
  if (step.drawn) operations = gather(step.operations, bytes);
  if (group_.rank() != 0) return {};

  StepFigures figures;
  auto [ranks, traces] =
      unpack(gathered, static_cast<std::size_t>(group_.size()), counted_, figures);
  if (step.drawn) {
    const Topology& topology = stepper_.topology();
    std::vector<StepClock> clocks;
    for (const RankTimes& rank : ranks) clocks.push_back(rank.clock);
    figures.timeline = step_timeline(topology, clocks, traces, operations);
    figures.predicted = predicted_timeline(step.executed->schedule, traces, topology.mesh);
  }
  keep_recent(step.executed, std::move(traces));
  measure_bubbles(figures);
  split_step_time(figures, ranks);
  return figures;
}

void Monitor::split_step_time(StepFigures& figures, const std::vector<RankTimes>& ranks) const {
  const std::vector<ExecutionTrace>& traces = recent_.back().traces;
  const Mesh& mesh = stepper_.topology().mesh;
  const bool asynchronous = stepper_.schedule().asynchronous();
  const bool updates_within = stepper_.schedule().updates == Updates::each_microbatch;
  auto& parts = figures.parts_ms;
  for (const char* name : {"products", "kernels", "waiting", "rest"}) parts[name] = 0;
  double after = 0;
  for (const int first : mesh.same_stage(0)) {
    const std::vector<int> pipeline = mesh.pipeline(first);
    const auto [begin, end] = computed(traces, pipeline);
    for (const int r : pipeline) {
      const RankTimes& rank = ranks[static_cast<std::size_t>(r)];
      const StepClock& clock = rank.clock;
      const double taken = ms(clock.end.wall_ns - clock.begin.wall_ns);
      // Kernels are measured, so they come first. The rest of the step is waiting and work without
      // a clock. Kernels between two steps count in one of the steps.
      const double kernels = rank.kernel_ms[0] + rank.kernel_ms[1];
      const double fitting = kernels > taken ? taken / kernels : 1;
      // Asynchronous iterations neither fill nor drain the pipeline, so the rank's own span counts.
      const auto from = asynchronous ? clock.begin.wall_ns : begin;
      const auto to = asynchronous ? clock.executed.wall_ns : end;
      const double computing = work(traces[static_cast<std::size_t>(r)]);
      double idle = ms(to - from) - computing;
      if (updates_within) idle -= std::max(0.0, kernels - computing);
      const double waiting = std::clamp(idle, 0.0, std::max(0.0, taken - fitting * kernels));
      parts["products"] += fitting * rank.kernel_ms[0];
      parts["kernels"] += fitting * rank.kernel_ms[1];
      parts["waiting"] += waiting;
      parts["rest"] +=
          std::max(0.0, taken - fitting * kernels - waiting);  // rounding may leave less
      after = std::max(after, ms(clock.end.cpu_ns - clock.executed.cpu_ns));
    }
  }
  for (auto& [name, sum] : parts) sum /= static_cast<double>(ranks.size());
  if (figures.replayed_ms) *figures.replayed_ms += after;
}

}  // namespace trident
