#include "parallel/transport/mpi_reduction.h"

#include <fmt/format.h>

#include <optional>

namespace trident {
namespace {

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return MPI_DOUBLE;
    case DType::f32:
      return MPI_FLOAT;
    case DType::i64:
      return MPI_INT64_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::u8:
      return MPI_UINT8_T;
    case DType::bf16:
    case DType::f16:
      break;
  }
  return MPI_DATATYPE_NULL;
}

// MPI does not define a minimum of values with a NaN among them.
MPI_Op operation_of(ReduceOp op) {
  return op == ReduceOp::sum || op == ReduceOp::average ? MPI_SUM : MPI_OP_NULL;
}

}  // namespace

bool mpi_reduces(DType dtype, ReduceOp op) {
  return type_of(dtype) != MPI_DATATYPE_NULL && operation_of(op) != MPI_OP_NULL;
}

MPI_Comm make_reduction_communicator(MPI_Comm messages, const std::vector<int>& members, int tag,
                                     std::chrono::milliseconds limit) {
  const Watchdog watchdog(
      limit,
      fmt::format("trident: waited {} ms for all ranks of a group to open its reductions",
                  limit.count()),
      job_exit_code);
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Comm_group(messages, &all);
  check_mpi(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some),
            "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(messages, some, tag, &made), "MPI_Comm_create_group");
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
  return made;
}

MpiReduction::MpiReduction(MpiEndpoint& endpoint, MPI_Comm members, int peer, void* data,
                           std::int64_t n, DType dtype, ReduceOp op)
    : endpoint_(endpoint), peer_(peer) {
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, data, static_cast<int>(n), type_of(dtype),
                           operation_of(op), members, &request_),
            "MPI_Iallreduce");
}

// MPI can't cancel the reduction, and would write to the buffer later.
MpiReduction::~MpiReduction() {
  if (!complete_) endpoint_.abort("an all-reduce of MPI was abandoned before its end");
}

bool MpiReduction::test() {
  if (complete_) return true;
  int done = 0;
  check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Iallreduce");
  complete_ = done != 0;
  return complete_;
}

Outcome MpiReduction::wait(Countdown& countdown) {
  BackOff back_off(endpoint_.spins());
  std::optional<WaitTable::Entry> entry;
  for (int looks = 0; !test(); back_off.pause()) {
    if (countdown.over()) return Outcome::late;
    if (++looks == polls_before_entry) entry.emplace(endpoint_.waits(), [this] { return peer_; });
  }
  return Outcome::complete;
}

}  // namespace trident
