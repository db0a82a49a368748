// How this process was started: alone, or by mpirun or srun as one of a job's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "run/launch/rendezvous.h"

namespace trident {

// The default is a process by itself. `trident` reads the environment for it
// (app/detect_launch.cc).
struct Launch {
  bool mpi = false;          // under mpirun or srun
  int ranks = 1;             // of the MPI world
  int rank = 0;              // of this process in it
  int local_ranks = 1;       // on this machine
  int local_rank = 0;        // of this process among them
  bool leads = true;         // world rank 0: the one that talks
  int cores = 1;             // that this machine's ranks may use together: for threads "auto"
  bool gpus_chosen = false;  // somebody chose this process's GPUs: CUDA_VISIBLE_DEVICES is set
  // Variables by which libraries choose how to compute, with their values.
  std::vector<std::pair<std::string, std::string>> environment;
  // Of this user, for what can be found again, such as measurements of this machine; "": none.
  std::string cache_folder = {};
  std::shared_ptr<Rendezvous> start = std::make_shared<Rendezvous>(false, 0, 1);
};

// How many of the machine's ranks, `world` in all, share the `gpus` that this process sees. Slurm
// can give each task GPUs of its own: they were chosen, and there are fewer than ranks. (Where it
// shows all ranks the same, NCCL tells of it.)
std::int64_t ranks_on_gpus(const Launch&, std::int64_t world, std::int64_t gpus);

}  // namespace trident
