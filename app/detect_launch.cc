#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/processors.h"
#include "core/core_contention.h"

namespace trident::app {
namespace {

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// The environment variables that change numeric results. Leaves out ONEDNN_MAX_CPU_ISA, since ranks
// compare the resulting instructions instead, and variables that only control diagnostics.
std::vector<std::pair<std::string, std::string>> numeric_environment() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string entry = *at, name = entry.substr(0, entry.find('='));
    const auto begins = [&](std::string_view text) { return name.starts_with(text); };
    const auto ends = [&](std::string_view text) { return name.ends_with(text); };
    const bool library = (begins("ONEDNN_") || begins("DNNL_")) && !ends("_VERBOSE") &&
                         !ends("_MAX_CPU_ISA") && name.find("_JIT_") == std::string::npos;
    // These give a rank fewer threads than the config does, which changes the last digits.
    const bool threads =
        name == "OMP_THREAD_LIMIT" || name == "OMP_DYNAMIC" || name == "OMP_MAX_ACTIVE_LEVELS";
    if (library || threads || name == "NVIDIA_TF32_OVERRIDE" || name == "CUBLAS_WORKSPACE_CONFIG" ||
        name == "NCCL_ALGO" || name == "NCCL_PROTO") {
      found.emplace_back(name, entry.substr(std::min(entry.size(), name.size() + 1)));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Makes waiting OpenMP threads give up their cores when another program wants them.
//
// A libgomp thread that waits for its team spins on its core for milliseconds. Thread teams watch
// for contention and then make libgomp believe that it has more threads than cores
// (core/thread_team_openmp.cc). The variables set here make a thread sleep at once in that case.
// libgomp reads them only when it is loaded, so a command that computes starts the program again
// with them; a command that starts other processes passes them on. Where teams can't watch for
// contention, a thread spins only for microseconds. Values that the user has set stay.
void let_threads_give_way(char** arguments) {
  constexpr auto policy = "OMP_WAIT_POLICY", spins = "GOMP_SPINCOUNT";
  if (std::getenv(policy) != nullptr || std::getenv(spins) != nullptr) return;
  const std::string_view command =
      arguments[0] != nullptr && arguments[1] != nullptr ? arguments[1] : "";
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, command) != names.end();
  };
  const bool computes = is_one_of({"train", "eval", "generate", "bench", "plan", "search"});
  if (!computes && !is_one_of({"launch", "sweep"})) return;
  setenv(policy, "passive", 1);
  setenv(spins, time_without_core() ? "300000" : "1000", 1);
  if (!computes) return;
  // ps shows the program's path. A program file that was replaced meanwhile has no path, so the
  // link itself is tried next.
  std::error_code none;
  execv(std::filesystem::read_symlink("/proc/self/exe", none).c_str(), arguments);
  execv("/proc/self/exe", arguments);
}

// $XDG_CACHE_HOME/trident, else ~/.cache/trident.
std::string cache_folder() {
  // A path that isn't absolute has to be ignored (XDG Base Directory Specification).
  const auto absolute = [](const char* name) -> std::string {
    const char* const text = std::getenv(name);
    return text != nullptr && text[0] == '/' ? text : "";
  };
  if (const std::string own = absolute("XDG_CACHE_HOME"); !own.empty()) return own + "/trident";
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.cache/trident";
}

}  // namespace

Launch detect_launch(char** arguments) {
  let_threads_give_way(arguments);
  Launch launch;
  launch.gpus_chosen = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  launch.cache_folder = cache_folder();
  launch.environment = numeric_environment();
  const Processors processors = find_processors();
  launch.cores = processors.own;
  bool bound = false;
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {  // Open MPI's mpirun
    launch.mpi = true;
    launch.ranks = number("OMPI_COMM_WORLD_SIZE", 1);
    launch.local_ranks = number("OMPI_COMM_WORLD_LOCAL_SIZE", launch.ranks);
    launch.local_rank = number("OMPI_COMM_WORLD_LOCAL_RANK", 0);
    launch.rank = number("OMPI_COMM_WORLD_RANK", 0);
    bound = number("OMPI_MCA_orte_bound_at_launch", 0) != 0;
  } else if (std::getenv("PMIX_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr) {  // srun
    launch.mpi = true;
    launch.ranks = number("PMI_SIZE", number("SLURM_NTASKS", 1));
    // The value may be "4(x2),3"; the first number is the tasks of the first nodes.
    launch.local_ranks =
        number("SLURM_STEP_TASKS_PER_NODE", number("SLURM_TASKS_PER_NODE", launch.ranks));
    launch.local_rank = number("SLURM_LOCALID", 0);
    launch.rank = number("PMIX_RANK", number("PMI_RANK", 0));
    bound = true;  // Slurm binds each task to cores of its own unless told otherwise
  }
  if (bound) {
    launch.cores =
        std::max(launch.cores, std::min(launch.cores * launch.local_ranks, processors.all));
  }
  launch.leads = launch.rank == 0;
  launch.start = std::make_shared<Rendezvous>(launch.mpi, launch.rank, launch.ranks);
  return launch;
}

}  // namespace trident::app
