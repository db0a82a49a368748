#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/processors.h"

namespace trident::app {
namespace {

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// What they may use of the processor is compared by what comes of it, and the rest of these only
// tell.
std::vector<std::pair<std::string, std::string>> numeric_environment() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string entry = *at, name = entry.substr(0, entry.find('='));
    const auto begins = [&](std::string_view text) { return name.starts_with(text); };
    const auto ends = [&](std::string_view text) { return name.ends_with(text); };
    const bool library = (begins("ONEDNN_") || begins("DNNL_")) && !ends("_VERBOSE") &&
                         !ends("_MAX_CPU_ISA") && name.find("_JIT_") == std::string::npos;
    // By these a rank computes with fewer threads than it was given, which gives other last digits.
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

// A thread of libgomp's spins for milliseconds before it sleeps, unless its own process has more
// threads than cores. Where the processes of this machine have more together, it holds the core
// that another rank needs, and a run takes 100 times as long. libgomp reads its policy when it is
// loaded, so there this program starts itself again under OMP_WAIT_POLICY=passive. What the user
// has set stays.
void let_threads_sleep(char** arguments) {
  constexpr auto policy = "OMP_WAIT_POLICY", spins = "GOMP_SPINCOUNT";
  if (std::getenv(policy) != nullptr || std::getenv(spins) != nullptr) return;
  setenv(policy, "passive", 1);
  execv("/proc/self/exe", arguments);
  unsetenv(policy);  // it goes on, slowly
}

}  // namespace

Launch detect_launch(char** arguments) {
  Launch launch;
  launch.gpus_chosen = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
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
    // "4(x2),3": tasks of the first nodes.
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
  launch.before_mpi = [mpi = launch.mpi, ranks = launch.local_ranks, cores = launch.cores,
                       arguments](std::int64_t threads_per_rank) {
    if (mpi && threads_per_rank > 1 && ranks * threads_per_rank > cores) {
      let_threads_sleep(arguments);
    }
  };
  return launch;
}

}  // namespace trident::app
