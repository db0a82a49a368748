#include "parallel/transport/transports.h"

#include <algorithm>

namespace trident {
namespace {

constexpr TransportKind transport_kinds[] = {
    {.name = "local",
     .doc = "threads of one process; ranks may share a GPU",
     .run_threads = run_local,
     .carries_gpu_tensors = true},
    {.name = "mpi",
     .doc = "processes of an MPI job, on the CPU",
     .run_process = run_mpi,
     .needs_staging = true},
    {.name = "nccl",
     .doc = "threads or processes, each with a GPU of its own, whose tensors NCCL carries",
     .run_threads = run_local,
     .run_process = run_mpi,
     .carries_gpu_tensors = true,
     .gpu_for_each_rank = true,
     .needs_staging = true,
     .nccl = true},
};

}  // namespace

std::span<const TransportKind> transports() {
  return transport_kinds;
}

const TransportKind* find_transport(std::string_view name) {
  const auto* const found = std::find_if(std::begin(transport_kinds), std::end(transport_kinds),
                                         [&](const TransportKind& t) { return t.name == name; });
  return found == std::end(transport_kinds) ? nullptr : found;
}

}  // namespace trident
