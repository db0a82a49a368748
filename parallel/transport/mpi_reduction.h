// MPI's own all-reduce, nonblocking. MPI chooses the order of additions.
#pragma once

#include <string>
#include <vector>

#include "parallel/transport/mpi_endpoint.h"

namespace trident {

// Whether MPI has the type and the operation, for values that it adds in their own type.
bool mpi_reduces(DType dtype, ReduceOp op);

// The members' communicator (world ranks by group rank), for reductions alone. Collective over the
// members, which must call it at once. MPI waits in it without a limit, so the process ends after
// `limit`.
MPI_Comm make_reduction_communicator(MPI_Comm messages, const std::vector<int>& members, int tag,
                                     std::chrono::milliseconds limit);

// data[i] := the reduction of the members' data[i]; `average` adds only.
class MpiReduction final : public Request {
 public:
  // `peer`: the world rank that this rank is reported to wait for.
  MpiReduction(MpiEndpoint& endpoint, MPI_Comm members, int peer, void* data, std::int64_t n,
               DType dtype, ReduceOp op);
  ~MpiReduction() override;

  bool test() override;
  Outcome wait(Countdown& countdown) override;
  const Descriptor& peer_descriptor() const override { return nothing_; }
  const std::byte* view() const override { return nullptr; }

 private:
  MpiEndpoint& endpoint_;
  int peer_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool complete_ = false;
  Descriptor nothing_;
};

}  // namespace trident
