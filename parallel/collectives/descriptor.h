// The description of an operation that travels in front of every message. The receiver compares it
// with its own before it touches any data.
#pragma once

#include <cstdint>
#include <span>
#include <string>

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
  message  // point to point
};

// Plain bytes on the wire, without padding.
struct Descriptor {
  std::uint64_t group = 0;     // the group's id
  std::uint64_t sequence = 0;  // of the operation in its group; of a message on its link
  std::int64_t count = 0;      // elements of the operation's input
  std::int32_t root = -1;      // group rank, -1 where there is none
  Operation operation = Operation::barrier;
  DType dtype = DType::u8;
  ReduceOp reduce_op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::direct;
  bool operator==(const Descriptor&) const = default;
};
static_assert(sizeof(Descriptor) == 32);

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
