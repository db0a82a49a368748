// Counts the processors (hardware threads) of this machine.
#pragma once

namespace trident::app {

struct Processors {
  int own = 1;  // this process is bound to them: taskset, mpirun --bind-to, a job's cpuset
  // Processes here may be bound to them: excludes processors offline or outside the container.
  int all = 1;
};
Processors find_processors();

}  // namespace trident::app
