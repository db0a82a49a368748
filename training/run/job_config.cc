#include "training/run/job_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/available_memory.h"
#include "core/error.h"
#include "kernels/cuda_device.h"
#include "training/plan/fit.h"
#include "training/run/devices.h"
#include "training/setup/from_config.h"
#include "training/setup/kinds.h"

namespace trident {
namespace {

LoadOptions options_of(const ConfigRequest& request, const Launch& launch, const GpuSearch& gpus) {
  LoadOptions load{.rules = built_in_rules()};
  load.ranks = request.ranks;
  load.cores = launch.cores;
  if (launch.mpi) {
    load.ranks = launch.ranks;
    load.local_ranks = launch.local_ranks;
    load.transport = "mpi";
  }
  load.gpus = gpus.count;
  // Processes exchange a GPU's tensors by NCCL, which has a GPU for each.
  const bool enough = !launch.mpi || ranks_on_gpus(launch, launch.ranks, gpus.count) <= gpus.count;
  if (launch.mpi && gpus.count > 0 && enough) load.gpus = launch.local_ranks;
  if (gpus.count > 0 && enough) load.device = "cuda";
  return load;
}

// With the smallest size for "auto", or where the config doesn't go with that, the largest: until
// the memory is known.
LoadedConfig load_any_size(const ConfigRequest& request, LoadOptions load) {
  load.micro_batch_size = 1;
  try {
    return load_config(request.path, request.set, load);
  } catch (const RequestError&) {
    load.micro_batch_size = 0;
    try {
      LoadedConfig loaded = load_config(request.path, request.set, load);
      if (loaded.micro_batch_is_auto) return loaded;
    } catch (const RequestError&) {
      // The first one says more.
    }
    throw;
  }
}

// Bytes that a rank of this machine may take. A tenth is left to others.
std::int64_t free_memory(const Config& config, const Launch& launch, int gpus) {
  const std::int64_t sharers = launch.mpi ? launch.local_ranks : config.world_size();
  const auto of_gpu = config.runtime.device == "cuda"
                          ? Devices(config).memory(ranks_on_gpus(launch, config.world_size(), gpus))
                          : std::optional<std::int64_t>();
  return of_gpu.value_or(available_memory() / sharers) / 10 * 9;
}

void need_fit_of_given_size(const Config& config, const Architecture& architecture,
                            std::int64_t limit) {
  const auto peak = planned_peak(config, architecture);
  if (!peak || *peak <= limit) return;
  throw RequestError(fmt::format(
      "config: /batch/micro_batch_size: \"auto\" is {} with gradient_accumulation_steps {}, "
      "which takes {} bytes a rank of {}; leave gradient_accumulation_steps out",
      config.batch.micro_batch_size, config.batch.gradient_accumulation_steps, *peak, limit));
}

}  // namespace

LoadedConfig load(const ConfigRequest& request, const Launch& launch,
                  std::optional<std::int64_t> memory) {
  const GpuSearch gpus = find_gpus();
  LoadOptions load = options_of(request, launch, gpus);
  LoadedConfig loaded = load_any_size(request, load);
  if (loaded.device_is_auto && loaded.config.runtime.device == "cpu") {
    loaded.why_cpu = gpus.count > 0 ? "more processes than GPUs" : gpus.reason;
  }
  if (launch.before_mpi) launch.before_mpi(loaded.config.runtime.threads_per_rank);
  Rendezvous& start = *launch.start;
  start.limit(transport_options(loaded.config).timeout);
  // Hosts with fewer cores or more ranks than others set what "auto" is for all: results depend on
  // the threads of a rank.
  if (launch.mpi) {
    const std::int64_t own = std::max(1, launch.cores / std::max(1, launch.local_ranks));
    if (const std::int64_t least = start.agree({}, own); least < own) {
      load.cores = least * launch.local_ranks;
      loaded = load_any_size(request, load);
    }
  }
  const bool automatic = loaded.micro_batch_is_auto;
  const Config& config = loaded.config;
  // Nodes differ, and what is free changes while processes ask.
  std::int64_t limit = 0;
  if (automatic) limit = memory.value_or(free_memory(config, launch, gpus.count));
  limit = start.agree(
      {{"config: /batch/micro_batch_size", automatic ? "\"auto\"" : "a number",
        "give all ranks the same file and --set"},
       {"--memory", memory ? std::to_string(*memory) : "none", "give all ranks the same"}},
      limit);
  if (!automatic) return loaded;
  const Architecture& architecture = *architecture_of(config);
  if (loaded.accumulation_is_given) {  // which leaves one size
    if (!memory) need_fit_of_given_size(config, architecture, limit);
    return loaded;
  }
  const auto size = largest_micro_batch(config, architecture, limit);
  if (!size && !memory) {
    schedule_of(config);  // throws where it is the schedule that allows no size
    throw RequestError(fmt::format(
        "config: /batch/micro_batch_size: \"auto\" finds none that fits {} bytes a rank; `trident "
        "plan --memory {}B` says what would",
        limit, limit));
  }
  if (!size) return loaded;  // the plan says what would fit
  load.micro_batch_size = *size;
  return load_config(request.path, request.set, load);
}

void check_launch(const Config& config, const Launch& launch) {
  const TransportRules& transport = transport_rules(config);
  const auto& all = config.rules->transports;
  if (!transport.threads && !launch.mpi) {
    throw RequestError(fmt::format(
        "config: /runtime/transport: \"{}\" needs processes that mpirun or srun started, "
        "and this one was not; use \"auto\" or \"{}\", or start it with mpirun -n {}",
        transport.name, names_where(all, &TransportRules::threads).front(), config.world_size()));
  }
  if (!transport.processes && launch.mpi && launch.ranks > 1) {
    throw RequestError(fmt::format(
        "config: /runtime/transport: \"{}\" runs all ranks in one process, but mpirun "
        "started {}; use \"{}\" or \"auto\"",
        transport.name, launch.ranks, names_where(all, &TransportRules::processes).front()));
  }
}

}  // namespace trident
