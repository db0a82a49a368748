// The subcommands of `trident`; each adds itself to the command line and gives its exit code.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/rendezvous.h"

namespace CLI {
class App;
}

namespace trident::app {

// How this process was started.
struct Launch {
  bool mpi = false;     // under mpirun or srun
  int ranks = 1;        // of the MPI world
  int rank = 0;         // of this process in it
  int local_ranks = 1;  // on this machine
  int local_rank = 0;   // of this process among them
  bool leads = true;    // world rank 0: the one that talks
  int cores = 1;        // that this machine's ranks may use together
  // Variables by which libraries choose how to compute, with their values.
  std::vector<std::pair<std::string, std::string>> environment;
  char** arguments = nullptr;  // main's
  std::shared_ptr<Rendezvous> start;
};
Launch detect_launch(char** arguments);  // reads the environment that mpirun and srun set
// A thread of libgomp's spins for milliseconds before it sleeps, unless its own process has more
// threads than cores. Where the processes of this machine have more together, it holds the core
// that another rank needs, and a run takes 100 times as long. libgomp reads its policy when it is
// loaded, so there this program starts itself again under OMP_WAIT_POLICY=passive. What the user
// has set stays. Before MPI is initialised.
void let_threads_sleep(const Launch&, std::int64_t threads_per_rank);
// How many of the machine's ranks, `world` in all, share the `gpus` that this process sees. Slurm
// can give each task GPUs of its own: CUDA_VISIBLE_DEVICES is set, and there are fewer than ranks.
// (Where it shows all ranks the same, NCCL tells of it.)
std::int64_t ranks_on_gpus(const Launch&, std::int64_t world, std::int64_t gpus);

// What the chosen subcommand does; set by its callback, run by main.
using Action = std::function<int()>;

void add_train(CLI::App&, const Launch&, Action&);
void add_plan(CLI::App&, const Launch&, Action&);
void add_generate(CLI::App&, const Launch&, Action&);
void add_convert(CLI::App&, const Launch&, Action&);  // export and import
void add_schema(CLI::App&, Action&);
void add_bench(CLI::App&, const Launch&, Action&);
void add_schedule(CLI::App&, const Launch&, Action&);
void add_later(CLI::App&);  // commands of later releases: an error that says so

}  // namespace trident::app
