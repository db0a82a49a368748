#include "parallel/transport/transport_registry.h"

#include "parallel/transport/nccl/nccl.h"

namespace trident {

const std::vector<TransportKind>& transport_registry() {
  static const std::vector<TransportKind> table{
      {{.name = "local",
        .doc = "runs all of them as threads of one process",
        .gpu = true,
        .processes = false},
       run_local},
      {{.name = "mpi",
        .doc = "one rank a process that mpirun or srun has started",
        .threads = false},
       nullptr,
       run_mpi,
       /*needs_staging=*/true},
      {{.name = "nccl",
        .doc = "either way with a GPU for each rank",
        .cpu = false,
        .gpu = true,
        .gpu_for_each_rank = true},
       run_local,
       run_mpi,
       /*needs_staging=*/true,
       &nccl_library}};
  return table;
}

}  // namespace trident
