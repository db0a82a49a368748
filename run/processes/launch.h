// How this process was started: alone, or by mpirun or srun as one process of a job. Every process
// has one Launch, made before its ranks start.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "run/processes/rendezvous.h"

namespace trident {

// The default describes a process alone. `trident` fills it in from the environment
// (app/detect_launch.cc).
struct Launch {
  bool mpi = false;          // under mpirun or srun
  int ranks = 1;             // the size of the MPI world
  int rank = 0;              // of this process in the MPI world
  int local_ranks = 1;       // the number of ranks on this machine
  int local_rank = 0;        // of this process among these
  bool leads = true;         // this process is world rank 0, which prints
  int cores = 1;             // cores that this machine's ranks may use together, for threads "auto"
  bool gpus_chosen = false;  // CUDA_VISIBLE_DEVICES is set for this process
  // Environment variables that change how libraries compute, with their values.
  std::vector<std::pair<std::string, std::string>> environment;
  // The user's cache folder, for results that can be computed again, such as measurements of this
  // machine; "": none.
  std::string cache_folder = {};
  std::shared_ptr<Rendezvous> start = std::make_shared<Rendezvous>(false, 0, 1);
};

// The number of ranks that share the `gpus` that this process sees. `world` is the number of ranks
// in all. Slurm can give each task GPUs of its own: then gpus_chosen is set, and `gpus` is smaller
// than the number of local ranks. (If Slurm shows the same GPU to all ranks, NCCL reports it.)
std::int64_t ranks_on_gpus(const Launch&, std::int64_t world, std::int64_t gpus);

}  // namespace trident
