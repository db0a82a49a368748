// The description of an operation that travels in front of every message. The receiver compares it
// with its own before it touches any data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "kernels/reduce_op.h"
#include "parallel/process_group.h"

namespace trident {

enum class Operation : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  barrier,
  split,
  message,  // point to point
  all_to_all_v
};

// Plain bytes on the wire, without padding.
struct Descriptor {
  std::uint64_t group = 0;     // the group's id
  std::uint64_t sequence = 0;  // of the operation in its group; of a message on its link
  std::int64_t count = 0;      // elements of the operation's input; see CountsTable
  std::int32_t root = -1;      // group rank, -1 where there is none
  Operation operation = Operation::barrier;
  DType dtype = DType::u8;
  ReduceOp reduce_op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::direct;
  bool operator==(const Descriptor&) const = default;
};
static_assert(sizeof(Descriptor) == 32);

// The elements that each member of an all_to_all_v sends to each. All members have the same table,
// of which their descriptors hold a hash.
struct CountsTable {
  int members = 0;  // N
  // Entry from · from_step + to · to_step is the number that member `from` sends to member `to`:
  // N·N of them, or N with a step of 0, where it doesn't depend on the sender or on the receiver.
  std::vector<std::int64_t> counts = {};
  std::size_t from_step = static_cast<std::size_t>(members), to_step = 1;

  bool is_complete() const { return from_step != 0 && to_step != 0; }
  std::int64_t sent(int from, int to) const {
    return counts[static_cast<std::size_t>(from) * from_step +
                  static_cast<std::size_t>(to) * to_step];
  }
  std::int64_t input(int member) const { return input_begin(member, members); }
  std::int64_t output(int member) const { return output_begin(member, members); }
  // Where the elements for member `to` begin in `member`'s input, and those from member `from` in
  // its output.
  std::int64_t input_begin(int member, int to) const;
  std::int64_t output_begin(int member, int from) const;
  std::int64_t most() const;  // that one member sends to one other
  std::int64_t hash() const;  // not negative
};

struct Collective;

std::string_view name_of(Operation operation);  // "all_reduce"
// "all_reduce(fp32[1024], sum)", or "…, sum, ring)" where the algorithm is not direct; a root is
// shown by its world rank. `members` holds world ranks by group rank. The algorithm's row is of
// `more`, or built in.
std::string to_string(const Descriptor& descriptor, std::span<const int> members,
                      std::span<const Collective> more = {});

// "0,1,5"; long lists are shortened in the middle.
std::string rank_list(std::span<const int> ranks);

}  // namespace trident
