#include "planner/plan/planned_rank.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "checkpoint/background_save.h"
#include "checkpoint/device_copies.h"
#include "core/operation_trace.h"
#include "datasets/synthetic_batches.h"
#include "engine/monitor.h"
#include "engine/rank_model.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "engine/stepper.h"
#include "kernels/cuda_device.h"
#include "parallel/transport/planning.h"
#include "scheduler/interleaved.h"
#include "scheduler/simulate.h"

namespace trident {
namespace {

struct Shortened {
  Config config;
  Schedule schedule;
};

// Returns the config with `few` micro-batches; nothing if it has no more than that, if its schedule
// needs more, or if the schedule's lists come from a file or a search. A schedule that runs groups
// of micro-batches gets at least `groups` of them, of the same size, and the same last one.
std::optional<Shortened> with_fewer(const Config& config, const Schedule& schedule,
                                    std::int64_t few, std::int64_t groups) {
  const std::int64_t m = config.num_microbatches();
  const ScheduleConstraints& constraints = schedule_constraints(config);
  if (!config.pipeline.schedule_file.empty() || constraints.searched) return std::nullopt;
  Shortened result{config, {}};
  std::int64_t& group = result.config.pipeline.microbatch_group_size_per_vp_stage;
  if (constraints.grouped) {
    group = interleaved_group_size(constraints.name, schedule.stages, static_cast<int>(m),
                                   static_cast<int>(group));
    few = std::max(few, groups * group);
    few += (group + m % group - few % group) % group;
  }
  if (m <= few) return std::nullopt;
  BatchConfig& batch = result.config.batch;
  batch.gradient_accumulation_steps = few;
  batch.global_batch_size = batch.global_batch_size / m * few;
  try {
    result.schedule = schedule_of(result.config);
  } catch (const RequestError&) {
    return std::nullopt;
  }
  return result;
}

// Returns a number of micro-batches that fills a pipeline and runs a round of v·p forwards after
// that: with v chunks a rank, the first backward comes after at most (v + 1)·p forwards. A single
// stage runs four, since the first, the second and the last may differ.
std::int64_t few_of(const Schedule& schedule) {
  return std::max(4, 3 * schedule.stages);
}

// Returns the config with fewer micro-batches, such that every rank still reaches the same number
// of micro-batches in flight.
Shortened shortened(const Config& config, const Schedule& schedule) {
  // Compares with all, half and a tenth of the activations kept for the weight gradients.
  const auto held = [](const Schedule& of) {
    return std::array{peak_in_flight(of), peak_in_flight(of, 0.5), peak_in_flight(of, 0.1)};
  };
  const auto wanted = held(schedule);
  const std::int64_t few = few_of(schedule), unit = std::max(few, config.stages() * 2);
  for (const std::int64_t microbatches : {few, unit, 2 * unit}) {
    auto result = with_fewer(config, schedule, microbatches, 4);
    if (result && held(result->schedule) == wanted) return *std::move(result);
  }
  return {config, schedule};
}

// Returns the config with fewer micro-batches in which each chunk runs a first, a last and other
// micro-batches, in the order in which the whole schedule runs them.
Shortened shortened_for_trace(const Config& config, const Schedule& schedule) {
  auto result = with_fewer(config, schedule, few_of(schedule), 3);
  return result ? *std::move(result) : Shortened{config, schedule};
}

// Whether an iteration ends during the next one, so that its check and the monitor's report of it
// overlap the next iteration.
bool ends_late(const Stepper& stepper) {
  return stepper.post_validation() || stepper.updates_unchecked();
}

// Allocates the losses of `microbatches` where the rank has the last stage; else returns no tensor.
Tensor losses_of(std::int64_t microbatches, const ParallelConfig& parallel,
                 const Schedule& schedule, int rank, Context& context) {
  if (microbatches == 0) return {};
  const Mesh mesh = mesh_of(parallel);
  for (int place = 0; place < schedule.stages; ++place) {
    const auto& held = schedule.placement[static_cast<std::size_t>(place)];
    if (std::ranges::find(held, schedule.total_stages() - 1) == held.end()) continue;
    const std::vector<int> ranks = mesh.same_stage(place);
    if (std::ranges::find(ranks, rank) == ranks.end()) continue;
    return context.empty({microbatches}, DType::f64, Category::activation);
  }
  return {};
}

// Returns the number of iterations until all later ones are alike. The second iteration meets
// memory that the first has left, a late check meets the next iteration, and older versions of
// weights accumulate with every update.
int iterations_of(const Stepper& stepper) {
  const Schedule& schedule = stepper.schedule();
  const int late = ends_late(stepper) ? 1 : 0;
  if (!schedule.asynchronous()) return 2 + late;
  return 2 + late + (schedule.stages - 1) / schedule.microbatches;
}

// The same for an iteration's operations: those of a synchronous iteration don't depend on the one
// before, unless its end overlaps the next.
int iterations_to_trace(const Stepper& stepper) {
  const bool alone = !stepper.schedule().asynchronous() && !ends_late(stepper);
  return alone ? 1 : iterations_of(stepper);
}

// The copies have parameters of their own, since the model's memory is freed with it.
std::vector<BucketLayout> layouts_of(const ParameterBuckets& buckets) {
  std::vector<BucketLayout> layouts;
  for (const Bucket& bucket : buckets.buckets()) {
    BucketLayout& layout = layouts.emplace_back(bucket.layout);
    for (BucketEntry& entry : layout.entries) {
      entry.parameter = std::make_shared<Parameter>(entry.parameter->spec());
    }
  }
  return layouts;
}

std::int64_t buffer_bytes_of(const ParameterBuckets& buckets) {
  std::int64_t bytes = 0;
  for (const Bucket& bucket : buckets.buffers()) {
    for (const BucketEntry& entry : bucket.layout.entries) {
      bytes += entry.numel * static_cast<std::int64_t>(size_of(bucket.weights.dtype()));
    }
  }
  return bytes;
}

std::vector<Action> computes_of(const ExecutionTrace& trace) {
  std::vector<Action> actions;
  for (const TracedAction& event : trace.events) {
    const LoweredAction& a = event.action;
    if (a.step == Step::compute) actions.push_back({a.kind, a.stage, a.microbatch, a.fused});
  }
  return actions;
}

}  // namespace

bool is_for_gpu(const RuntimeConfig& runtime) {
  const std::string& on = runtime.device;
  return on == "cuda" || (on == "auto" && find_gpus().count > 0);
}

RankPlanner::RankPlanner(const Config& config, const Architecture& architecture,
                         const Schedule& schedule)
    : config_(config), architecture_(architecture), schedule_(schedule) {
  const Shortened less = shortened(config, schedule);
  run_ = run_of(less.config, less.schedule);
  const Shortened least = schedule.asynchronous() ? less : shortened_for_trace(config, schedule);
  traced_ = run_of(least.config, least.schedule);
  on_gpu_ = is_for_gpu(config.runtime);
  device_ = make_planning_device(on_gpu_ ? DeviceKind::cuda : DeviceKind::cpu);
}

RankPlanner::Run RankPlanner::run_of(const Config& config, const Schedule& schedule) {
  Run run{config, schedule, {}, {}};
  // The run lasts at least as long as the planner runs it.
  run.config.training.train_iters =
      std::max<std::int64_t>(3 + schedule.stages, config.training.train_iters);
  run.lists = std::make_shared<RunLists>(schedule, run.config.training.train_iters);
  // Only a synchronous schedule counts messages. An asynchronous one carries its sent messages into
  // the next iteration and frees each as the next one is sent.
  if (!schedule.asynchronous() && schedule.stages > 1) {
    const auto& iteration = run.lists->iterations.of(0);
    run.sent = std::make_shared<SentMessages>(iteration.schedule, iteration.lists);
  }
  return run;
}

PlannedRank RankPlanner::plan(int pipeline) const {
  std::optional<StepTraffic> traffic;
  PlannedRank rank = plan(run_, pipeline, traffic);
  if (!traffic) {
    // The messages of its actions differ in other ways, so all actions are run.
    plan(run_of(config_, schedule_), pipeline, traffic);
  }
  rank.traffic = *traffic;
  return rank;
}

PlannedRank RankPlanner::plan_memory(int pipeline) const {
  std::optional<StepTraffic> traffic;
  return plan(run_, pipeline, traffic);
}

template <class Visit>
void RankPlanner::with_stepper(const Run& run, int pipeline, Visit visit) const {
  const Mesh mesh = mesh_of(run.config.parallel);
  with_stepper(run, mesh.pipeline(0)[static_cast<std::size_t>(pipeline)], *device_, visit);
}

template <class Visit>
void RankPlanner::with_stepper(const Run& run, int rank, Device& device, Visit visit) const {
  const Config& config = run.config;
  Context context(device, static_cast<int>(config.runtime.threads_per_rank),
                  kernel_options(config.training, config.precision, config.runtime));
  const auto transport =
      make_planning_transport(rank, static_cast<int>(config.world_size()),
                              transport_of(config).needs_staging, transport_options(config));
  RankModel model(context, config, architecture_, run.schedule,
                  topology_of(config.parallel, run.schedule, *transport));
  Stepper stepper(model, run.lists);
  if (run.sent) stepper.keep_sent(*run.sent);
  visit(context, model, stepper);
}

TracedStep RankPlanner::trace(int pipeline) const {
  TracedStep step{.microbatches = traced_.config.num_microbatches()};
  with_stepper(traced_, pipeline, [&](Context& context, const RankModel&, Stepper& stepper) {
    const int iterations = iterations_to_trace(stepper);
    for (int i = 0; i < iterations; ++i) {
      if (i + 1 == iterations) context.set_trace(&step.trace);
      batches_.resize(static_cast<std::size_t>(step.microbatches + stepper.look_ahead()));
      stepper.advance(batches_, {.learning_rate = 0, .close = !ends_late(stepper)});
    }
    context.set_trace(nullptr);
    step.actions = computes_of(stepper.trace());
    stepper.wait_for_result();
  });
  return step;
}

MeasuredRank RankPlanner::measure(int rank, Device& device, int iterations,
                                  const EachIteration& each) const {
  constexpr int warm_up = 2;
  MeasuredRank measured;
  // The run is long enough that its last iterations, where the look-ahead runs out, aren't reached.
  Config config = run_.config;
  config.training.train_iters = std::max<std::int64_t>(
      config.training.train_iters, iterations + warm_up + 2 + run_.schedule.stages);
  const Run run = run_of(config, run_.schedule);
  with_stepper(run, rank, device, [&](Context& context, RankModel& model, Stepper& stepper) {
    model.initialise();
    context.ledger().reset_peaks();
    // Holds the losses and tokens of all micro-batches, as in the plan.
    const Tensor losses = losses_of(config_.num_microbatches() - config.num_microbatches(),
                                    config.parallel, run.schedule, rank, context);
    auto batches = synthetic_batches(run_.config, static_cast<std::uint64_t>(rank));
    const std::int64_t all = config_.num_microbatches() + stepper.look_ahead();
    for (std::size_t i = 0; std::ssize(batches) < all; ++i) {
      batches.push_back(HostMicroBatch(batches[i]));
    }
    for (int i = -warm_up; i < iterations; ++i) {
      if (each.begin) each.begin();
      OperationTrace trace;
      context.set_trace(&trace);
      const ClockReading begin = read_clock();
      stepper.advance(batches, {.learning_rate = run_.config.optimizer.params.lr,
                                .close = !ends_late(stepper)});
      context.synchronize();
      const double seconds = 1e-9 * static_cast<double>(read_clock().wall_ns - begin.wall_ns);
      trace.compute_times();
      if (i < 0) continue;
      if (each.ran) each.ran(trace);
      const bool fastest = std::all_of(measured.seconds.begin(), measured.seconds.end(),
                                       [&](double other) { return seconds < other; });
      measured.seconds.push_back(seconds);
      if (fastest) measured.step.trace = std::move(trace);
    }
    context.set_trace(nullptr);
    measured.step.actions = computes_of(stepper.trace());
    stepper.wait_for_result();
    const Ledger::Figures figures = context.ledger().figures();
    measured.memory = {figures.peak, figures.peak_total};
  });
  return measured;
}

PlannedRank RankPlanner::plan(const Run& run, int pipeline,
                              std::optional<StepTraffic>& traffic) const {
  PlannedRank rank;
  with_stepper(run, pipeline, [&](Context& context, RankModel& model, Stepper& stepper) {
    rank = plan(run, pipeline, context, model, stepper, traffic);
  });
  return rank;
}

// Returns the length of the longest list of iteration i with all micro-batches. Lists don't grow in
// exact proportion to the number of micro-batches.
std::int64_t RankPlanner::longest_list(int i) const {
  if (!lists_) lists_.emplace(schedule_, run_.config.training.train_iters);
  std::int64_t most = 0;
  for (const auto& list : lists_->of(i).lists) most = std::max(most, std::ssize(list));
  return most;
}

PlannedRank RankPlanner::plan(const Run& run, int pipeline, Context& context, RankModel& model,
                              Stepper& stepper, std::optional<StepTraffic>& traffic) const {
  const Config& config = run.config;
  OperationTrace trace(OperationTrace::Of::groups);
  context.ledger().reset_peaks();
  // All tokens of an iteration are in memory at once.
  Tensor report;
  std::int64_t collected = 0;  // bytes of all ranks' reports, on the rank that collects them
  Ledger::Figures between;
  const std::int64_t microbatches = config_.num_microbatches();
  // The losses of the micro-batches that don't run.
  const Tensor losses =
      losses_of(microbatches - config.num_microbatches(), config.parallel, run.schedule,
                mesh_of(config.parallel).pipeline(0)[static_cast<std::size_t>(pipeline)], context);
  const int iterations = iterations_of(stepper);
  for (int i = 0; i < iterations; ++i) {
    if (i + 1 == iterations) context.set_trace(&trace);
    batches_.resize(static_cast<std::size_t>(microbatches + stepper.look_ahead()));
    stepper.advance(batches_, {.learning_rate = 0, .close = !ends_late(stepper)});
    // The report is read at once, or after the next iteration.
    const std::int64_t bytes =
        report_bytes(longest_list(i), model.topology().traffic_groups().size());
    report = {};
    report = context.empty({bytes}, DType::u8, Category::communication);
    collected = bytes * config.world_size();
    between = context.ledger().figures();
    if (!ends_late(stepper)) report = {};
  }
  const std::vector<Action>& all = schedule_.ranks[static_cast<std::size_t>(pipeline)];
  traffic = config.num_microbatches() == microbatches
                ? StepTraffic(trace)
                : StepTraffic::extrapolated(trace, computes_of(stepper.trace()), all);
  context.set_trace(nullptr);
  stepper.wait_for_result();
  const Ledger::Figures figures = context.ledger().figures();
  PlannedRank rank{.buckets = layouts_of(model.buckets()),
                   .buffer_bytes = buffer_bytes_of(model.buckets()),
                   .rolls_back = stepper.post_validation()};
  rank.memory = rank.collecting = {figures.peak, figures.peak_total};
  std::int64_t& communication =
      rank.collecting.peak[static_cast<std::size_t>(Category::communication)];
  if (ends_late(stepper)) {
    communication += collected;
    rank.collecting.peak_total += collected;
  } else {
    const auto now = between.current[static_cast<std::size_t>(Category::communication)];
    communication = std::max(communication, now + collected);
    rank.collecting.peak_total = std::max(rank.collecting.peak_total, between.total + collected);
  }
  const CheckpointConfig& saves = config.checkpoint;
  const int kinds = (saves.save_interval > 0 ? 1 : 0) + (saves.local.interval > 0 ? 1 : 0);
  if (saves.asynchronous && kinds > 0 && (!on_gpu_ || saves.device_copies)) {
    const State state = stepper.state();
    const DType weights = model.shape().dtype;
    const std::int64_t staged =
        kinds * (on_gpu_ ? copied_bytes(state, weights, static_cast<std::uint64_t>(saves.min_slice))
                         : staged_bytes(state, weights, saves));
    for (PlannedMemory* memory : {&rank.memory, &rank.collecting}) {
      memory->peak[static_cast<std::size_t>(Category::staging)] = staged;
      memory->peak_total += staged;
    }
  }
  return rank;
}

std::int64_t library_bytes(const Config& config) {
  // Measured (docs/memory.md): a small run's peak resident memory minus its ledgers.
  constexpr std::int64_t process = 33'000'000;  // code, libraries and their tables
  constexpr std::int64_t rank = 4'500'000;      // memory that its allocator keeps, stacks
  if (!transport_constraints(config).threads) return process + rank;  // each rank is a process
  return process / config.world_size() + rank;
}

}  // namespace trident
