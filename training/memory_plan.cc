#include "training/memory_plan.h"

#include <algorithm>

#include "core/device.h"
#include "parallel/transport/planning.h"
#include "scheduler/simulate.h"
#include "training/from_config.h"
#include "training/rank_model.h"
#include "training/trainer.h"

namespace trident {
namespace {

struct Shortened {
  Config config;
  Schedule schedule;
};

// The same with fewer micro-batches, where every rank still comes to hold as many at once.
Shortened shortened(const Config& config, const Schedule& schedule) {
  const std::int64_t unit = config.stages() * 2;
  const std::int64_t m = config.num_microbatches();
  if (m <= std::max<std::int64_t>(2 * unit, 16) || !config.pipeline.schedule_file.empty() ||
      config.pipeline.schedule == "auto") {
    return {config, schedule};
  }
  const auto wanted = peak_in_flight(schedule);
  for (const std::int64_t few : {unit, 2 * unit}) {
    Shortened result{config, {}};
    BatchConfig& batch = result.config.batch;
    batch.gradient_accumulation_steps = few;
    batch.global_batch_size = batch.micro_batch_size * few * config.parallel.data_parallel_size;
    result.schedule = schedule_of(result.config);
    if (peak_in_flight(result.schedule) == wanted) return result;
  }
  return {config, schedule};
}

// `microbatches`: of the run that was shortened; all of an iteration's tokens are there at once.
MemoryPlan memory_of(const Shortened& run, const Architecture& architecture, int pipeline,
                     std::int64_t microbatches, Device& device) {
  const Config& config = run.config;
  const RankGrid grid = rank_grid_of(config);
  Context context(device, static_cast<int>(config.runtime.threads_per_rank));
  const auto transport = make_planning_transport(
      grid.rank({.tensor = 0, .data = 0, .pipeline = pipeline}),
      static_cast<int>(config.world_size()), static_cast<int>(config.runtime.ranks_per_node),
      config.runtime.transport == "mpi", transport_options(config));
  RankModel model(context, config, architecture, run.schedule,
                  topology_of(config, run.schedule, *transport));
  context.ledger().reset_peaks();
  HostMicroBatch zeros;
  zeros.sample_ids.resize(static_cast<std::size_t>(config.batch.micro_batch_size));
  zeros.tokens.resize(zeros.sample_ids.size() *
                      static_cast<std::size_t>(config.data.sequence_length));
  zeros.labels = zeros.tokens;
  // The second iteration meets what the first has left, a late check what comes after it.
  for (int i = 0; i < (model.late_check() ? 3 : 2); ++i) {
    const std::vector<HostMicroBatch> batches(
        static_cast<std::size_t>(microbatches + model.look_ahead()), zeros);
    model.advance(batches, {.learning_rate = 0, .close = !model.late_check()});
  }
  model.settle();
  const Ledger::Figures figures = context.ledger().figures();
  return {figures.peak, figures.peak_total};
}

}  // namespace

std::vector<MemoryPlan> plan_memory(const Config& config, const Architecture& architecture,
                                    const Schedule& schedule) {
  Shortened run = shortened(config, schedule);
  // Room for the iterations that are run.
  run.config.training.train_iters = std::max<std::int64_t>(4, config.training.train_iters);
  const auto device = make_planning_device();
  std::vector<MemoryPlan> plans;
  for (int pipeline = 0; pipeline < schedule.stages; ++pipeline) {
    plans.push_back(memory_of(run, architecture, pipeline, config.num_microbatches(), *device));
  }
  return plans;
}

std::int64_t library_bytes(const Config& config) {
  // Measured with docs/memory.md's script: a small run's peak resident memory less its ledgers.
  constexpr std::int64_t process = 38'000'000;
  if (config.runtime.transport == "mpi") return process;  // a rank is a process
  return process / std::max<std::int64_t>(1, config.runtime.ranks_per_node);
}

}  // namespace trident
