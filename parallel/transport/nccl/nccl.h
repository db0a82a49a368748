// NCCL under a transport: the hosts go on as before (threads, or MPI), tensors of GPUs go by
// NCCL's communicators. A build without CUDA links transport/no_nccl.cc.
#pragma once

#include <memory>
#include <string>

#include "parallel/transport/endpoint.h"

namespace trident {

// Takes every message of the hosts to `host`. NCCL serves at most one rank on a GPU.
std::shared_ptr<Endpoint> with_nccl(std::shared_ptr<Endpoint> host);

// "2.28.9"; "" in a build without CUDA.
std::string nccl_version();

}  // namespace trident
