// One implementation of a collective operation: a row of the table that choose() reads
// (parallel/collectives/algorithm_choice.h).
//
// n is the number of elements of a member's own part, N the number of members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "parallel/collectives/descriptor.h"
#include "parallel/transport/shared_rendezvous.h"

namespace trident {

class Exchange;

// One member's buffers, by operation:
//   all_reduce       input = output [n]
//   reduce_scatter   input [n * N], output [n], which may be this member's part of input
//   reduce           input = output [n]; the root's becomes the reduction
//   all_gather       input [n], output [n * N]; input may be this member's part of output
//   broadcast        input = output [n]
//   gather           input [n], output [n * N] on the root, null elsewhere
//   scatter          input [n * N] on the root, null elsewhere, output [n]
//   all_to_all       input and output [n * N]
//   all_to_all_v     input and output of the sizes in Exchange::counts()
//   barrier          none
struct Buffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t n = 0;
  std::byte* staging = nullptr;  // the row's `staging` says how many elements
};

// The properties that a choice may depend on. Except for `rank` they are equal on all members, so
// that all members choose the same row.
struct CollectiveCase {
  Operation operation = Operation::all_reduce;
  Algorithm algorithm = Algorithm::automatic;  // the requested one; of all_reduce
  Sharing sharing = Sharing::nothing;
  bool on_gpu = false;
  bool by_library = false;          // a library carries the tensors (collectives/communicator.h)
  bool library_reduces = false;     // and can reduce by reduce_op
  bool views_need_staging = false;  // a message can't be read in its sender's memory
  bool by_transport = false;        // the endpoint has a reduction of its own for this
  bool host_runs = false;           // the group spans hosts whose members are neighbours in it
  bool deterministic = true;
  int members = 2;
  int rank = 0;  // group rank
  int root = -1;
  std::int64_t n = 0;
  DType dtype = DType::f32;
  ReduceOp reduce_op = ReduceOp::sum;

  std::int64_t bytes() const { return n * static_cast<std::int64_t>(size_of(dtype)); }
  bool asks_for(Algorithm one) const {
    return algorithm == one || algorithm == Algorithm::automatic;
  }
};

struct Collective {
  Operation operation = Operation::all_reduce;
  // The number by which members and plans distinguish implementations. Rows with equal values add
  // in the same order and send equal bytes.
  Algorithm algorithm = Algorithm::direct;
  // The name of its file. Where the row has a number of its own, errors show this name.
  std::string_view name;
  // Whether it can serve the case and is the requested algorithm. The first row that serves is
  // taken.
  bool (*serves)(const CollectiveCase&) = nullptr;
  void (*run)(Exchange&, const Buffers&) = nullptr;
  // The number of elements of staging memory that it works in; null: none.
  std::int64_t (*staging)(const CollectiveCase&) = nullptr;
  // The number of elements that a member sends, by operation, n, members, rank and root alone;
  // null: the same number as direct. Plans count this number (parallel/collectives/volume.h); a run
  // counts the bytes that it sends.
  std::int64_t (*sent)(const CollectiveCase&) = nullptr;
};

}  // namespace trident
