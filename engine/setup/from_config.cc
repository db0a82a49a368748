#include "engine/setup/from_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files/file.h"
#include "engine/setup/model_costs.h"
#include "engine/setup/registry.h"
#include "scheduler/csv.h"
#include "scheduler/schedules.h"
#include "scheduler/validate.h"

namespace trident {
namespace {

// The user's own schedule. It has to have the sizes of the run.
Schedule schedule_of_file(const std::string& path, const ScheduleRequest& run) {
  const std::string text = read_file(path);
  try {
    Schedule schedule = from_csv(text, "file");
    const auto same = [](const char* what, int has, const char* key, int wanted) {
      if (has == wanted) return;
      throw RequestError(
          fmt::format("has {} {}, but {} is {}; set it to {}", has, what, key, wanted, has));
    };
    same("rows (ranks)", schedule.stages, "parallel.pipeline_model_parallel_size", run.stages);
    same("stages in each row", schedule.chunks, "parallel.virtual_pipeline_model_parallel_size",
         run.chunks);
    same("micro-batches", schedule.microbatches, "batch.gradient_accumulation_steps",
         run.microbatches);
    validate(schedule);
    return schedule;
  } catch (const RequestError& error) {
    throw error.at(path + ": ");
  }
}

}  // namespace

std::string schedule_name(const PipelineConfig& pipeline) {
  return pipeline.schedule_file.empty() ? pipeline.schedule : pipeline.schedule_file;
}

Schedule schedule_of(const Config& config) {
  const ScheduleConstraints& kind = schedule_constraints(config);
  ScheduleRequest request{
      .kind = kind.name,
      .stages = static_cast<int>(config.parallel.pipeline_model_parallel_size),
      .microbatches = static_cast<int>(config.num_microbatches()),
      .chunks = static_cast<int>(config.parallel.virtual_pipeline_model_parallel_size),
      .group_size = static_cast<int>(config.pipeline.microbatch_group_size_per_vp_stage),
      .registry = &registry_of(config).schedules};
  const std::string& file = config.pipeline.schedule_file;
  if (kind.searched && file.empty()) {
    // The search uses the FLOPs of each stage, and the memory limit of 1F1B.
    request.memory.most = {static_cast<double>(request.stages)};
    request.stage_times =
        stage_costs(model_costs(config, *architecture_of(config)), config.pipeline.layer_split);
  }
  try {
    if (!file.empty()) return schedule_of_file(file, request);
    Schedule schedule = make_schedule(request);
    validate(schedule);
    return schedule;
  } catch (const RequestError& error) {
    throw error.at(file.empty() ? "config: /pipeline/schedule: "
                                : "config: /pipeline/schedule_file: ");
  }
}

std::unique_ptr<UpdateRule> make_update_rule(const Config& config) {
  auto rule = optimizer_of(config).make(config.optimizer.params);
  const double decay = config.training.ema_decay;
  return decay > 0 ? with_average(std::move(rule), decay) : std::move(rule);
}

BucketLimits bucket_limits(const ZeroConfig& zero, const ParallelConfig& parallel) {
  return {.elements = std::min(zero.reduce_bucket_size, zero.allgather_bucket_size),
          .persistence_threshold = zero.stage3_param_persistence_threshold,
          .axes = parallel.axes()};
}

bool reduces_each_micro_batch(const Config& config) {
  // Data ranks sum gradients, and so do the holders of experts. An expert that one rank holds has
  // the tokens of others, which add up in the same order.
  const ParallelConfig& parallel = config.parallel;
  const bool sums = parallel.ranks(Group::loss) > 1 || parallel.ranks(Group::exchange) > 1 ||
                    parallel.ranks(Group::expert_shard) > 1;
  // If each micro-batch updates its stages, it is already reduced by itself.
  return config.zero_optimization.reduce_each_micro_batch && config.num_microbatches() > 1 &&
         sums && !schedule_constraints(config).each_microbatch;
}

std::int64_t recompute_layers(const ActivationCheckpointingConfig& how) {
  return how.granularity == "full" ? how.num_layers : 0;
}

Mesh mesh_of(const ParallelConfig& parallel) {
  return Mesh(parallel.axes(), parallel.rank_order);
}

StageEnds ends_of(const Schedule& schedule) {
  return {.first = schedule.rank_of_stage(0),
          .last = schedule.rank_of_stage(schedule.total_stages() - 1)};
}

TransportOptions transport_options(const Config& config) {
  const auto& algorithms = registry_of(config).algorithms;
  const AlgorithmKind* const algorithm = find_row(algorithms, config.runtime.collective_algorithm);
  auto more = std::make_shared<std::vector<Collective>>();
  for (const AlgorithmKind& kind : algorithms) {
    more->insert(more->end(), kind.rows.begin(), kind.rows.end());
  }
  return {.deterministic = config.training.deterministic,
          .timeout = std::chrono::milliseconds(
              static_cast<std::int64_t>(config.runtime.timeout_seconds * 1000)),
          .algorithm = algorithm == nullptr ? Algorithm::automatic : algorithm->algorithm,
          .ranks_per_node = static_cast<int>(config.runtime.ranks_per_node),
          .threads_per_rank = static_cast<int>(config.runtime.threads_per_rank),
          .more_collectives = std::move(more),
          .library = transport_of(config).library};
}

KernelOptions kernel_options(const TrainingConfig& training, const PrecisionConfig& precision,
                             const RuntimeConfig& runtime) {
  return {.deterministic = training.deterministic,
          .tf32 = precision.tf32,
          .widen_bf16 = runtime.bf16_products == "widened"};
}

Topology topology_of(const ParallelConfig& parallel, const Schedule& schedule,
                     Transport& transport) {
  return make_topology(transport.world(), mesh_of(parallel), transport.nodes(), ends_of(schedule));
}

BatchRamp ramp_of(const BatchConfig& batch) {
  const std::vector<std::int64_t>& ramp = batch.rampup_batch_size;
  if (ramp.empty()) return {};
  return {.start = ramp.at(0), .increment = ramp.at(1), .samples = ramp.at(2)};
}

BatchShape batch_shape(const BatchConfig& batch, const Topology& topology) {
  return {.global_batch_size = batch.global_batch_size,
          .micro_batch_size = batch.micro_batch_size,
          .place = topology.place(Group::batch),
          .places = topology.size(Group::batch)};
}

// By a choice of parallel.cp_comm_type.
static ContextAttention::Exchange exchange_of(const std::string& cp_comm_type) {
  using Way = ContextAttention::Exchange;
  return cp_comm_type == "all_gather" ? Way::all_gather
         : cp_comm_type == "a2a"      ? Way::a2a
         : cp_comm_type == "p2p"      ? Way::p2p
                                      : Way::a2a_p2p;
}

ParallelContext parallel_context_of(const ParallelConfig& parallel,
                                    const ActivationCheckpointingConfig& checkpointing,
                                    const Topology& topology) {
  return ParallelContext({.tensor = topology.of(Group::tensor),
                          .rank = topology.place(Group::tensor),
                          .size = topology.size(Group::tensor),
                          .sequence_parallel = parallel.sequence_parallel,
                          .gathers_again = checkpointing.granularity == "selective",
                          .overlap = parallel.tp_comm_overlap,
                          .context = topology.of(Group::context),
                          .context_rank = topology.place(Group::context),
                          .context_size = topology.size(Group::context),
                          .context_exchange = exchange_of(parallel.cp_comm_type),
                          .context_heads = topology.of(Group::context_heads),
                          .context_ring = topology.of(Group::context_ring),
                          .context_neighbours = topology.size(Group::context_heads),
                          .exchange = topology.of(Group::exchange),
                          .exchange_rank = topology.place(Group::exchange),
                          .expert = topology.size(Group::expert),
                          .expert_tensor = topology.size(Group::expert_tensor)});
}

}  // namespace trident
