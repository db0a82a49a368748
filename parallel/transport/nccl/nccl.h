// NCCL under a transport: the hosts communicate as before (by threads, or MPI), and NCCL's
// communicators carry the tensors of GPUs. A build without CUDA links
// parallel/transport/no_nccl.cc.
#pragma once

#include <memory>
#include <string>

#include "parallel/collectives/communicator.h"
#include "parallel/transport/endpoint.h"

namespace trident {

// NCCL serves at most one rank on a GPU. Throws RequestError in a build without CUDA.
std::shared_ptr<CommunicatorLibrary> make_nccl(std::shared_ptr<Endpoint> host);

// NCCL doesn't define minimum and maximum of NaNs, and has no operations on bits. It chooses the
// order of additions itself, so it reduces only outside deterministic mode.
inline bool nccl_reduces(ReduceOp op, bool deterministic) {
  return !deterministic && (op == ReduceOp::sum || op == ReduceOp::average);
}

inline constexpr CommunicatorLibraryKind nccl_library{make_nccl, nccl_reduces};

// "2.28.9"; "" in a build without CUDA.
std::string nccl_version();

}  // namespace trident
