#include "run/startup/job_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "base/units.h"
#include "checkpoint/checkpoint_folder.h"
#include "core/available_memory.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "formats/hugging_face/model_directory.h"
#include "kernels/cuda_device.h"
#include "parallel/transport/mpi_job.h"
#include "planner/plan/fit.h"
#include "run/processes/devices.h"

namespace trident {
namespace {

LoadOptions options_of(const ConfigRequest& request, const Launch& launch, const GpuSearch& gpus) {
  LoadOptions load{.constraints = built_in_constraints(), .saved_model = saved_model_section};
  load.ranks = request.ranks;
  load.least_data_parallel = request.least_data_parallel;
  load.cores = launch.cores;
  if (launch.mpi) {
    load.ranks = launch.ranks;
    load.local_ranks = launch.local_ranks;
    load.transport = "mpi";
  }
  load.gpus = gpus.count;
  // Processes exchange GPU tensors by NCCL, which needs a GPU for each process.
  const bool enough = !launch.mpi || ranks_on_gpus(launch, launch.ranks, gpus.count) <= gpus.count;
  if (launch.mpi && gpus.count > 0 && enough) load.gpus = launch.local_ranks;
  if (gpus.count > 0 && enough) load.device = "cuda";
  return load;
}

std::string text_of(const ConfigRequest& request) {
  return request.text.empty() ? read_config(request.path) : request.text;
}

// Loads the config before the memory is known: a micro-batch size of "auto" becomes the smallest
// size, or the largest where the config is not valid with the smallest.
LoadedConfig load_any_size(const std::string& text, const ConfigRequest& request,
                           LoadOptions load) {
  load.micro_batch_size = 1;
  try {
    return parse_config(text, request.set, load, request.path);
  } catch (const RequestError&) {
    load.micro_batch_size = 0;
    try {
      LoadedConfig loaded = parse_config(text, request.set, load, request.path);
      if (loaded.micro_batch_is_auto) return loaded;
    } catch (const RequestError&) {
      // The first error says more.
    }
    throw;
  }
}

// The memory in bytes that each of `world` ranks may take on this machine. A tenth is left for
// other programs.
std::int64_t free_memory(const Config& config, std::int64_t world, const Launch& launch, int gpus) {
  const std::int64_t sharers = launch.mpi ? launch.local_ranks : world;
  const auto of_gpu = config.runtime.device == "cuda"
                          ? Devices(config).memory(ranks_on_gpus(launch, world, gpus))
                          : std::optional<std::int64_t>();
  return of_gpu.value_or(available_memory() / sharers) / 10 * 9;
}

// Says why the micro-batch size that follows from gradient_accumulation_steps doesn't fit; "" where
// it fits.
std::string problem_of_given_size(const Config& config, const Architecture& architecture,
                                  std::int64_t limit) {
  const auto peak = planned_peak(config, architecture);
  if (!peak || *peak <= limit) return "";
  return fmt::format(
      "config: /batch/micro_batch_size: \"auto\" is {} with gradient_accumulation_steps {}, "
      "which takes {} a rank of {}; leave gradient_accumulation_steps out",
      config.batch.micro_batch_size, config.batch.gradient_accumulation_steps, bytes_text(*peak),
      bytes_text(limit));
}

// The number of ranks where neither the config nor the launch gives one.
std::int64_t all_ranks(const Config& config, const MachineSource& source, std::int64_t gpus,
                       std::int64_t cores) {
  if (source.machine) return source.machine->all_devices();
  if (config.runtime.device != "cuda") return cores;
  const Devices devices(config);  // throws where this machine has no GPU
  return std::max<std::int64_t>(1, gpus);
}

// The first process measures the machine and searches; the other processes wait.
LoadedConfig with_layout(const LoadedConfig& base, const std::string& text, ConfigRequest request,
                         const LoadOptions& load, const Launch& launch, std::int64_t memory) {
  constexpr std::chrono::minutes longer(30);
  const JobSize job{.ranks = load.ranks.value_or(1),
                    .ranks_per_node = load.local_ranks.value_or(load.ranks.value_or(1)),
                    .memory = memory};
  std::string why;
  const auto choose = [&](const std::vector<std::string>&) {
    const ChosenLayout chosen = choose_layout(base, load, job, *request.layouts);
    why = chosen.text;
    return nlohmann::json(chosen.set).dump();
  };
  const std::string chosen = launch.start->exchange("", choose, longer);
  for (const auto& one : nlohmann::json::parse(chosen)) request.set.push_back(one);
  LoadedConfig loaded = load_any_size(text, request, load);
  loaded.why_layout = std::move(why);
  return loaded;
}

// The model's section of the weights in a directory. Keys that train routers, which transformers'
// config.json doesn't have, come from a checkpoint's own config, so that a run that continues from
// it balances its experts alike.
std::string section_of(const std::string& directory) {
  const std::string section = model_section(built_in_architectures(), directory);
  constexpr std::uint64_t most_config_bytes = std::uint64_t{1} << 24;
  constexpr const char* keys[] = {
      "router_load_balancing_type", "aux_loss_coeff",         "z_loss_coeff",
      "router_bias_update_rate",    "expert_capacity_factor", "token_drop_policy"};
  const std::string own = directory + "/trident/config.json";
  std::error_code none;
  nlohmann::json model = parse_json(section, directory);
  if (!model.contains("moe") || !std::filesystem::exists(own, none)) return section;
  // The code that loads the checkpoint reports a damaged file.
  const nlohmann::json saved = json_or_null(read_file(own, most_config_bytes));
  const nlohmann::json::json_pointer at("/model/moe");
  if (!saved.contains(at)) return section;
  const nlohmann::json& moe = saved.at(at);
  for (const char* key : keys) {
    if (moe.contains(key)) model["moe"][key] = moe.at(key);
  }
  return json_text(model);
}

}  // namespace

std::string saved_model_section(const std::string& directory) {
  std::error_code none;
  if (!std::filesystem::exists(directory + "/config.json", none)) {
    // The folder holds checkpoints of a run that hasn't ended.
    const auto found = newest_first(find_checkpoints(directory));
    if (!found.empty()) return section_of(found.front().path);
  }
  if (const std::string saved = weights_directory(directory); saved != directory) {
    throw RequestError(fmt::format("{} is the folder of a run; name that of its weights, \"{}\"",
                                   printable(directory), printable(saved)));
  }
  return section_of(directory);
}

std::int64_t free_memory(const Config& config, const Launch& launch) {
  return free_memory(config, config.world_size(), launch, find_gpus().count);
}

LoadedConfig load_anywhere(const ConfigRequest& request) {
  return load_any_size(text_of(request), request,
                       {.constraints = built_in_constraints(),
                        .ranks = request.ranks.value_or(1),
                        .saved_model = saved_model_section});
}

bool chooses_layout(const ConfigRequest& request) {
  return layout_is_auto(text_of(request), request.set);
}

LoadedConfig load(const ConfigRequest& request, const Launch& launch,
                  std::optional<std::int64_t> memory) {
  const GpuSearch gpus = find_gpus();
  LoadOptions load = options_of(request, launch, gpus);
  if (load.ranks && *load.ranks < 1) throw RequestError("--ranks: needs at least 1");
  const std::string text = text_of(request);
  LoadedConfig loaded = load_any_size(text, request, load);
  const bool chooses = loaded.parallel_is_auto && request.layouts.has_value();
  if (chooses && !load.ranks) {
    load.ranks = all_ranks(loaded.config, *request.layouts, gpus.count, launch.cores);
    loaded = load_any_size(text, request, load);
  }
  std::string why_cpu, why_layout;
  if (loaded.device_is_auto && loaded.config.runtime.device == "cpu") {
    why_cpu = gpus.count > 0 ? "more processes than GPUs" : gpus.reason;
  }
  Rendezvous& start = *launch.start;
  start.limit(transport_options(loaded.config).timeout);
  // Results depend on the number of threads of a rank. "auto" therefore gives all ranks the number
  // that the host with the fewest cores a rank allows.
  if (launch.mpi) {
    const std::int64_t own = std::max(1, launch.cores / std::max(1, launch.local_ranks));
    const Fingerprint layout{"config: /parallel", chooses ? "\"auto\"" : "sizes",
                             "give all ranks the same file and --set"};
    if (const std::int64_t least = start.agree({layout}, own); least < own) {
      load.cores = least * launch.local_ranks;
      loaded = load_any_size(text, request, load);
    }
  }
  if (chooses) {
    const std::int64_t free =
        memory ? *memory : free_memory(loaded.config, *load.ranks, launch, gpus.count);
    loaded = with_layout(loaded, text, request, load, launch, start.agree({}, free));
    why_layout = loaded.why_layout;
  }
  const auto explained = [&](LoadedConfig config) {
    config.why_cpu = why_cpu;
    config.why_layout = why_layout;
    return config;
  };
  const bool automatic = loaded.micro_batch_is_auto && !loaded.parallel_is_auto;
  const Config& config = loaded.config;
  // The free memory differs between nodes and changes over time, so the processes agree on one
  // limit.
  std::int64_t limit = 0;
  if (automatic) {
    limit = memory ? *memory : free_memory(config, config.world_size(), launch, gpus.count);
  }
  limit = start.agree(
      {{"config: /batch/micro_batch_size", automatic ? "\"auto\"" : "a number",
        "give all ranks the same file and --set"},
       {"--memory", memory ? std::to_string(*memory) : "none", "give all ranks the same"}},
      limit);
  if (!automatic) return explained(loaded);
  const Architecture& architecture = *architecture_of(config);
  std::string problem;
  if (loaded.accumulation_is_given) {  // only one size is left
    problem = problem_of_given_size(config, architecture, limit);
    if (problem.empty()) return explained(loaded);
  } else if (const auto size = largest_micro_batch(config, architecture, limit)) {
    load.micro_batch_size = *size;
    return explained(parse_config(text, request.set, load, request.path));
  } else {
    if (!memory) schedule_of(config);  // throws where the schedule allows no size
    problem = fmt::format(
        "config: /batch/micro_batch_size: \"auto\" finds none that fits {} a rank; `trident plan` "
        "says what would",
        bytes_text(limit));
  }
  if (!memory && !request.only_planned) throw RequestError(problem);
  loaded.fits_none = limit;
  return explained(loaded);
}

void check_launch(const Config& config, const Launch& launch) {
  const TransportConstraints& transport = transport_constraints(config);
  const auto& all = config.constraints->transports;
  if (!transport.threads && !launch.mpi) {
    throw RequestError(fmt::format(
        "config: /runtime/transport: \"{}\" needs processes that mpirun or srun started, "
        "and this one was not; use \"auto\" or \"{}\", or start it with mpirun -n {}",
        transport.name, names_where(all, &TransportConstraints::threads).front(),
        config.world_size()));
  }
  if (!transport.processes && launch.mpi && launch.ranks > 1) {
    throw RequestError(fmt::format(
        "config: /runtime/transport: \"{}\" runs all ranks in one process, but mpirun "
        "started {}; use \"{}\" or \"auto\"",
        transport.name, launch.ranks, names_where(all, &TransportConstraints::processes).front()));
  }
  if (transport.processes && launch.mpi) (void)make_mpi_job();  // throws where there is no MPI
}

}  // namespace trident
