#include "parallel/collectives/volume.h"

#include "parallel/collectives/algorithm_choice.h"
#include "parallel/collectives/exchange.h"

namespace trident {
namespace {

// The number of elements that a member sends with direct.
std::int64_t sent_by_direct(const CollectiveCase& c) {
  const std::int64_t others = c.members - 1;
  switch (c.operation) {
    case Operation::all_reduce:
      return c.n + (others - 1) * segment_of(c.n, c.members, c.rank).size();
    case Operation::reduce_scatter:
    case Operation::all_to_all:
    case Operation::all_gather:
      return c.n * others;
    case Operation::broadcast:
    case Operation::scatter:
      return c.rank == c.root ? c.n * others : 0;
    case Operation::reduce:
    case Operation::gather:
      return c.rank == c.root ? 0 : c.n;
    case Operation::message:
      return c.n;
    case Operation::barrier:
    case Operation::split:
    case Operation::all_to_all_v:  // its descriptor has no counts
      break;
  }
  return 0;
}

}  // namespace

std::int64_t bytes_sent(const Descriptor& d, int size, int rank, std::span<const Collective> more) {
  if (size == 1) return 0;
  const bool parts =
      d.operation == Operation::reduce_scatter || d.operation == Operation::all_to_all;
  const CollectiveCase c{.operation = d.operation,
                         .algorithm = d.algorithm,
                         .members = size,
                         .rank = rank,
                         .root = d.root,
                         .n = parts ? d.count / size : d.count,
                         .dtype = d.dtype,
                         .reduce_op = d.reduce_op};
  const Collective* const row = row_of(d.operation, d.algorithm, more);
  const std::int64_t elements =
      row == nullptr || row->sent == nullptr ? sent_by_direct(c) : row->sent(c);
  return elements * static_cast<std::int64_t>(size_of(d.dtype));
}

}  // namespace trident
