#include "run/startup/job_checks.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "base/process/process.h"
#include "base/request_problems.h"
#include "base/units.h"
#include "checkpoint/checkpoint_folder.h"
#include "core/threads.h"
#include "run/folders/run_folder.h"
#include "run/processes/agreement.h"
#include "run/startup/job_config.h"

namespace trident {

namespace {

bool may_resume(const CheckpointConfig& checkpoint) {
  const CheckpointConfig& asked = checkpoint;
  if (asked.save.empty() || asked.resume == "never") return false;
  try {
    return !find_checkpoints(asked.save).empty();
  } catch (const Error&) {
    return true;
  }
}

// Reading all files may take long: 1 TiB at most, at 100 MiB/s.
FoundOnNodes found_on_nodes(const CheckpointConfig& checkpoint, const Launch& launch) {
  constexpr std::chrono::seconds kLonger(10'000);
  return find_on_nodes(checkpoint, launch.rank, [&](const auto& own, const auto& answer) {
    return launch.start->exchange(own, answer, kLonger);
  });
}

// Identifies a folder on all hosts that share its disk. Different disks may give equal identities;
// tokenize_in_turn() handles that.
std::string identity_of_folder(const std::string& folder) {
  std::filesystem::path there = std::filesystem::absolute(folder).lexically_normal();
  std::string below;
  struct stat status {};
  while (::stat(there.c_str(), &status) != 0 && there != there.root_path()) {
    below = there.filename().string() + "/" + below;
    there = there.parent_path();
  }
  struct statvfs disk {};
  ::statvfs(there.c_str(), &disk);
  return fmt::format("{} {} {} {}", disk.f_blocks, disk.f_namemax, status.st_ino, below);
}

}  // namespace

void check_machine(const Config& config, const Launch& launch, RequestProblems& problems,
                   std::optional<Devices>& devices) {
  problems.collect([&] { check_launch(config, launch); });
  problems.collect([&] {
    devices.emplace(config);
    const std::int64_t here = ranks_on_gpus(launch, config.world_size(), devices->count());
    const TransportConstraints& transport = transport_constraints(config);
    if (transport.gpu_for_each_rank && here > devices->count()) {
      const auto others = names_where(
          config.constraints->transports,
          [](const TransportConstraints& kind) { return kind.gpu && !kind.gpu_for_each_rank; });
      throw RequestError(fmt::format(
          "config: /runtime/transport: \"{}\" needs a GPU for each rank, this machine has {} for "
          "{}{}",
          transport.name, devices->count(), counted(here, "rank"),
          others.empty() ? "" : fmt::format("; use \"{}\"", others.front())));
    }
  });
  problems.collect([&] {
    const std::int64_t ranks_here = launch.mpi ? 1 : config.world_size();
    const CheckpointConfig& saves = config.checkpoint;
    const std::int64_t kinds = saves.local.interval > 0 ? 2 : 1;
    const std::int64_t savers = saves.asynchronous ? kinds : 0;
    need_threads(ranks_here * (config.runtime.threads_per_rank + savers),
                 fmt::format("config: /runtime/threads_per_rank: {} of {} in one process",
                             counted(ranks_here, "rank"), config.runtime.threads_per_rank));
  });
}

void tokenize_in_turn(const std::string& cache, const Launch& launch,
                      const std::function<bool()>& lacks,
                      const std::function<void(bool writes)>& prepare_again) {
  for (int round = 0;; ++round) {
    std::string own;
    if (lacks()) {
      own = round == 0   ? identity_of_folder(cache)
            : round == 1 ? host_name() + ":" + std::filesystem::absolute(cache).string()
                         : fmt::format("rank {}", launch.rank);
    }
    // No practical limit, since texts may be long: a process that ends early ends the job anyway.
    const std::string chosen = launch.start->exchange(
        own,
        [](const std::vector<std::string>& all) {
          std::string ranks;
          for (std::size_t r = 0; r < all.size(); ++r) {
            const auto first = std::ranges::find(all, all[r]) - all.begin();
            if (!all[r].empty() && first == static_cast<std::ptrdiff_t>(r)) {
              ranks += fmt::format(",{},", r);
            }
          }
          return ranks;
        },
        std::chrono::hours(24 * 30));
    if (chosen.empty()) return;
    const bool tokenizes = chosen.find(fmt::format(",{},", launch.rank)) != std::string::npos;
    if (tokenizes) prepare_again(true);
    launch.start->exchange(
        "", [](const auto&) { return std::string(); }, std::chrono::hours(24 * 30));
    if (!own.empty() && !tokenizes) prepare_again(false);
  }
}

TrainingInputs checked_inputs(const LoadedConfig& loaded, const Launch& launch,
                              const TextAccess& texts, std::optional<Devices>& devices,
                              const std::optional<Bf16Machine>& machine) {
  const Config& config = loaded.config;
  TrainingInputs inputs;
  RequestProblems problems;
  check_machine(config, launch, problems, devices);
  problems.collect([&] {
    const std::string& dir = config.checkpoint.local.dir;
    try {
      if (!dir.empty()) check_output_directory(dir);
    } catch (const RequestError& error) {
      throw error.at("config: /checkpoint/local/dir: ");
    }
  });
  const FoundOnNodes on_nodes = found_on_nodes(config.checkpoint, launch);
  bool prepared = false;
  problems.collect([&] {
    TextAccess looking = texts;
    looking.writes = false;
    looking.remembers = texts.writes;
    inputs = prepare_training(loaded, on_nodes, looking);
    prepared = true;
  });
  // prepare_job() repeats this check with the size of the weights. Without the starting point of a
  // run that could not resume, the check would mistake the run's own logs for another run's.
  if (launch.leads && (prepared || !may_resume(config.checkpoint))) {
    problems.collect([&] { check_output(config, 0, run_of(inputs.start)); });
  }
  problems.raise();
  const auto prepare_again = [&](bool writes) {
    TextAccess access = texts;
    access.writes = writes;
    inputs = prepare_training(loaded, on_nodes, access);
  };
  const auto lacks = [&] { return !inputs.datasets.untokenized.empty(); };
  if (texts.writes) tokenize_in_turn(config.data.cache_path, launch, lacks, prepare_again);
  const std::string products = agree_on_bf16_products(inputs.config, launch, [&] {
    return choose_bf16_products(config, inputs.start.bf16_products,
                                machine ? *machine : bf16_machine(config, launch));
  });
  if (!products.empty()) inputs.start.messages.push_back(products);
  return inputs;
}

void add_fingerprint(const std::string& place, const TokenSource& source,
                     std::vector<Fingerprint>& prints) {
  if (source.contents().empty()) return;
  prints.push_back({fmt::format("tokens of {}/path", place), source.contents(),
                    "give all ranks texts and a tokenizer of the same contents"});
}

void compare_ranks(const TrainingInputs& inputs, const Devices& devices, const Launch& launch) {
  std::vector<Fingerprint> alike;
  std::string begins = "none";
  for (const FoundCheckpoint& one : inputs.start.checkpoints) {
    if (begins == "none") begins.clear();
    begins += fmt::format("{}{} {}", begins.empty() ? "" : ", ", one.iteration, one.manifest->root);
  }
  alike.push_back({"checkpoint to resume from", begins,
                   "all ranks have to see the same files in checkpoint.save"});
  for (std::size_t i = 0; inputs.datasets.train && i < inputs.datasets.train->parts().size(); ++i) {
    add_fingerprint(fmt::format("/data/train/{}", i), *inputs.datasets.train->parts()[i].source,
                    alike);
  }
  for (const auto& [name, set] : inputs.datasets.validation) {
    if (inputs.config.data.validation.empty()) continue;  // the set is split off data.train
    for (std::size_t i = 0; set && i < set->parts().size(); ++i) {
      add_fingerprint(fmt::format("/data/validation{}{}/{}", name.empty() ? "" : "/", name, i),
                      *set->parts()[i].source, alike);
    }
  }
  const auto add_end = [&](const std::string& set, const Dataset* data) {
    if (data == nullptr || !data->end_of_document()) return;
    alike.push_back({"token that ends a document of data." + set,
                     std::to_string(*data->end_of_document()),
                     "give all ranks a tokenizer of the same contents"});
  };
  add_end("train", inputs.datasets.train.get());
  for (const auto& [name, set] : inputs.datasets.validation) {
    add_end(name.empty() ? "validation" : "validation." + name, set.get());
  }
  compare_ranks(inputs.config, inputs.start.weights, alike, devices, launch);
}

void compare_ranks(const Config& config, const std::string& weights,
                   const std::vector<Fingerprint>& more, const Devices& devices,
                   const Launch& launch) {
  Rendezvous& start = *launch.start;
  if (!launch.mpi || launch.ranks < 2) return;
  std::vector<Fingerprint> alike = config_fingerprints(config);
  const auto machine = machine_fingerprints(devices, launch.environment);
  alike.insert(alike.end(), machine.begin(), machine.end());
  alike.insert(alike.end(), more.begin(), more.end());
  start.agree(alike);
  const std::vector<std::string> hosts = start.hosts();
  std::vector<int> host_of;
  for (const std::string& host : hosts) {
    host_of.push_back(
        static_cast<int>(std::find(hosts.begin(), hosts.end(), host) - hosts.begin()));
  }
  nodes_of(host_of, static_cast<int>(config.runtime.ranks_per_node), hosts);
  const std::vector<InputFile> files = input_files(config.data, config.pipeline, weights);
  // At most 1 GiB of each file is read; slow disks give 10 MiB/s.
  const std::chrono::seconds longer(100 * files.size());
  start.agree(file_fingerprints(files, launch.rank, [&](const auto& own, const auto& answer) {
    return start.exchange(own, answer, longer);
  }));
}

std::map<std::string, std::string> made_with(const Devices& devices, const Launch& launch) {
  std::map<std::string, std::string> made;
  for (const Fingerprint& print : machine_fingerprints(devices, launch.environment)) {
    made[print.name] = print.value;
  }
  return made;
}

std::string crowded_text(const Config& config, const Launch& launch, const Devices& devices) {
  const bool crosses = launch.mpi && launch.ranks > 1;
  const std::int64_t ranks = launch.mpi ? launch.local_ranks : config.world_size();
  const std::int64_t threads = config.runtime.threads_per_rank;
  std::string own;
  if (devices.gpu().empty() && threads > 1 && ranks * threads > launch.cores &&
      launch.local_rank == 0) {
    own = fmt::format(
        "warning: config: /runtime/threads_per_rank: {} of {} threads share {} of {}, "
        "so threads sleep where they would wait for each other; use {}",
        counted(ranks, "rank"), threads, counted(launch.cores, "core"),
        crosses ? host_name() : "this machine", std::max<std::int64_t>(1, launch.cores / ranks));
  }
  if (!crosses) return own;
  const auto lines = [](const std::vector<std::string>& all) {
    std::string text;
    for (const std::string& one : all) {
      if (!one.empty()) text += (text.empty() ? "" : "\n") + one;
    }
    return text;
  };
  return launch.start->exchange(own, lines, {});
}

}  // namespace trident
