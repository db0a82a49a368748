#include "training/memory_plan.h"

#include <algorithm>

#include "core/device.h"
#include "core/error.h"
#include "kernels/cuda_device.h"
#include "parallel/transport/planning.h"
#include "scheduler/simulate.h"
#include "training/from_config.h"
#include "training/monitor.h"
#include "training/rank_model.h"
#include "training/trainer.h"

namespace trident {
namespace {

struct Shortened {
  Config config;
  Schedule schedule;
  std::int64_t microbatches;  // of the run that was shortened
};

// The same with fewer micro-batches, where every rank still comes to hold as many at once.
Shortened shortened(const Config& config, const Schedule& schedule) {
  const std::int64_t unit = config.stages() * 2;
  const std::int64_t m = config.num_microbatches();
  if (m <= std::max<std::int64_t>(2 * unit, 16) || !config.pipeline.schedule_file.empty() ||
      config.pipeline.schedule == "auto") {
    return {config, schedule, m};
  }
  const auto wanted = peak_in_flight(schedule);
  for (const std::int64_t few : {unit, 2 * unit}) {
    Shortened result{config, {}, m};
    BatchConfig& batch = result.config.batch;
    batch.gradient_accumulation_steps = few;
    batch.global_batch_size = batch.micro_batch_size * few * config.parallel.data_parallel_size;
    try {
      result.schedule = schedule_of(result.config);
    } catch (const RequestError&) {
      continue;  // the kind doesn't take so few
    }
    if (peak_in_flight(result.schedule) == wanted) return result;
  }
  return {config, schedule, m};
}

// Of a rank, and of the same one if it collects the monitor's reports.
std::pair<MemoryPlan, MemoryPlan> memory_of(const Shortened& run, const Architecture& architecture,
                                            int pipeline, Device& device) {
  const Config& config = run.config;
  const RankGrid grid = rank_grid_of(config);
  Context context(device, static_cast<int>(config.runtime.threads_per_rank),
                  kernel_options(config));
  const auto transport = make_planning_transport(
      grid.rank({.tensor = 0, .data = 0, .pipeline = pipeline}),
      static_cast<int>(config.world_size()),
      config.runtime.transport == "mpi" || config.runtime.transport == "nccl",
      transport_options(config));
  RankModel model(context, config, architecture, run.schedule,
                  topology_of(config, run.schedule, *transport));
  context.ledger().reset_peaks();
  HostMicroBatch zeros;
  zeros.sample_ids.resize(static_cast<std::size_t>(config.batch.micro_batch_size));
  zeros.tokens.resize(zeros.sample_ids.size() *
                      static_cast<std::size_t>(config.data.sequence_length));
  zeros.labels = zeros.tokens;
  // All of an iteration's tokens are there at once.
  // The second iteration meets what the first has left, a late check what comes after it.
  Tensor report;
  std::int64_t collected = 0;  // reports of all ranks, on the one that collects them
  Ledger::Figures between;
  for (int i = 0; i < (model.late_check() ? 3 : 2); ++i) {
    const std::vector<HostMicroBatch> batches(
        static_cast<std::size_t>(run.microbatches + model.look_ahead()), zeros);
    model.advance(batches, {.learning_rate = 0, .close = !model.late_check()});
    // As many times more actions as there are more micro-batches. The report is read at once, or
    // after the next iteration.
    std::int64_t actions = 0;
    for (const auto& list : model.executed().lists) actions = std::max(actions, std::ssize(list));
    const std::int64_t bytes = report_bytes(actions * run.microbatches / config.num_microbatches());
    report = {};
    report = context.empty({bytes}, DType::u8, Category::communication);
    collected = bytes * config.world_size();
    between = context.ledger().figures();
    if (!model.late_check()) report = {};
  }
  model.settle();
  const Ledger::Figures figures = context.ledger().figures();
  const MemoryPlan plain{figures.peak, figures.peak_total};
  MemoryPlan collecting = plain;
  std::int64_t& communication = collecting.peak[static_cast<std::size_t>(Category::communication)];
  if (model.late_check()) {
    communication += collected;
    collecting.peak_total += collected;
  } else {
    const auto now = between.current[static_cast<std::size_t>(Category::communication)];
    communication = std::max(communication, now + collected);
    collecting.peak_total = std::max(collecting.peak_total, between.total + collected);
  }
  return {plain, collecting};
}

}  // namespace

std::vector<MemoryPlan> plan_memory(const Config& config, const Architecture& architecture,
                                    const Schedule& schedule) {
  Shortened run = shortened(config, schedule);
  // Room for the iterations that are run.
  run.config.training.train_iters = std::max<std::int64_t>(4, config.training.train_iters);
  const std::string& on = config.runtime.device;
  const bool cuda = on == "cuda" || (on == "auto" && find_gpus().count > 0);
  const auto device = make_planning_device(cuda ? DeviceKind::cuda : DeviceKind::cpu);
  std::vector<MemoryPlan> plans;
  MemoryPlan first;
  for (int pipeline = 0; pipeline < schedule.stages; ++pipeline) {
    const auto [plain, collecting] = memory_of(run, architecture, pipeline, *device);
    plans.push_back(plain);
    if (pipeline == 0) first = collecting;
  }
  plans.push_back(first);
  return plans;
}

std::int64_t library_bytes(const Config& config) {
  // Measured (docs/memory.md): a small run's peak resident memory less its ledgers.
  constexpr std::int64_t process = 33'000'000;  // code, libraries and their tables
  constexpr std::int64_t rank = 4'500'000;      // what its allocator keeps ready, stacks
  if (config.runtime.transport == "mpi") return process + rank;  // a rank is a process
  return process / config.world_size() + rank;
}

}  // namespace trident
