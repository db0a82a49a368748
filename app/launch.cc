#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "app/commands.h"

namespace trident::app {
namespace {

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

Launch detect_launch(char** arguments) {
  Launch launch;
  launch.arguments = arguments;
  cpu_set_t set;
  CPU_ZERO(&set);
  launch.cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
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
        std::max(launch.cores, std::min(launch.cores * launch.local_ranks,
                                        static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))));
  }
  launch.leads = launch.rank == 0;
  launch.start = std::make_shared<StartPhase>(launch.mpi, launch.rank, launch.ranks);
  return launch;
}

void let_threads_sleep(const Launch& launch, std::int64_t threads_per_rank) {
  constexpr auto policy = "OMP_WAIT_POLICY", spins = "GOMP_SPINCOUNT";
  const bool crowded = threads_per_rank > 1 && launch.local_ranks * threads_per_rank > launch.cores;
  if (!launch.mpi || !crowded) return;
  if (std::getenv(policy) != nullptr || std::getenv(spins) != nullptr) return;
  setenv(policy, "passive", 1);
  execv("/proc/self/exe", launch.arguments);
  unsetenv(policy);  // it goes on, slowly
}

std::int64_t ranks_on_gpus(const Launch& launch, std::int64_t world, std::int64_t gpus) {
  if (!launch.mpi) return world;
  const bool own =
      gpus > 0 && gpus < launch.local_ranks && std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  return own ? 1 : launch.local_ranks;
}

}  // namespace trident::app
