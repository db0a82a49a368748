// NCCL under a transport: the hosts go on as before (threads, or MPI), tensors of GPUs go by
// NCCL's communicators. A build without CUDA links transport/no_nccl.cc.
#pragma once

#include <memory>
#include <string>

#include "parallel/collectives/communicator.h"
#include "parallel/transport/endpoint.h"

namespace trident {

// NCCL serves at most one rank on a GPU.
std::shared_ptr<CommunicatorLibrary> make_nccl(std::shared_ptr<Endpoint> host);

// It doesn't say what it makes of NaNs in minimum and maximum, and has no operations on bits.
// Outside deterministic mode only: the order of additions is its own.
inline bool nccl_reduces(ReduceOp op, bool deterministic) {
  return !deterministic && (op == ReduceOp::sum || op == ReduceOp::average);
}

inline constexpr CommunicatorLibraryKind nccl_library{make_nccl, nccl_reduces};

// "2.28.9"; "" in a build without CUDA.
std::string nccl_version();

}  // namespace trident
