// One way to carry out a collective operation: a row of the table that choose() reads
// (algorithm_choice.h).
//
// n: elements of a member's own part, N: members.
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
//   barrier          none
struct Buffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t n = 0;
  std::byte* staging = nullptr;  // as many elements as the row's `staging` says
};

// What a choice may depend on. But for `rank` the members have it alike, so that all choose one
// row.
struct CollectiveCase {
  Operation operation = Operation::all_reduce;
  Algorithm algorithm = Algorithm::automatic;  // what was asked for; of all_reduce
  Sharing sharing = Sharing::nothing;
  bool on_gpu = false;
  bool by_library = false;          // a library carries the tensors (communicator.h)
  bool library_reduces = false;     // and reduces by reduce_op
  bool views_need_staging = false;  // a message can't be read where its sender has it
  bool by_transport = false;        // the endpoint has such a reduction of its own
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
  // By which members and plans tell ways from each other that add in other orders or send other
  // volumes: rows of one operation with one number send alike, those with direct's as direct does.
  Algorithm algorithm = Algorithm::direct;
  std::string_view name;  // of the file that has it; with a number of its own, what errors call it
  // Whether it can serve, and is what was asked for. The first row that says so is taken.
  bool (*serves)(const CollectiveCase&) = nullptr;
  void (*run)(Exchange&, const Buffers&) = nullptr;
  // Elements of memory that it works in; null: none.
  std::int64_t (*staging)(const CollectiveCase&) = nullptr;
  // Elements that a member sends, by operation, n, members, rank and root alone; null: as many as
  // direct does. Plans count by it (volume.h), a run what is sent.
  std::int64_t (*sent)(const CollectiveCase&) = nullptr;
};

}  // namespace trident
