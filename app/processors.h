// The processors (hardware threads) of this machine.
#pragma once

namespace trident::app {

struct Processors {
  int own = 1;  // that this process is bound to: taskset, mpirun --bind-to, a job's cpuset
  // That processes here may be bound to: without those offline or outside the container.
  int all = 1;
};
Processors find_processors();

}  // namespace trident::app
