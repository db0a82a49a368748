#include "parallel/collectives/volume.h"

#include "parallel/collectives/exchange.h"

namespace trident {
namespace {

std::int64_t all_reduce_sent(const Descriptor& d, std::int64_t element, int size, int rank) {
  const auto segment = [&](int i) { return segment_of(d.count, size, i % size).size() * element; };
  const std::int64_t bytes = d.count * element;
  if (d.algorithm == Algorithm::ring) return 2 * bytes - segment(rank + 1) - segment(rank + 2);
  if (d.algorithm == Algorithm::tree) {
    std::int64_t links = rank == 0 ? 0 : 1;  // the parent; children lie below the lowest set bit
    for (int below = 1; rank + below < size && (rank & below) == 0; below *= 2) ++links;
    return links * bytes;
  }
  return bytes + (size - 2) * segment(rank);
}

}  // namespace

std::int64_t bytes_sent(const Descriptor& d, int size, int rank) {
  if (size == 1) return 0;
  const auto element = static_cast<std::int64_t>(size_of(d.dtype));
  const std::int64_t bytes = d.count * element;
  switch (d.operation) {
    case Operation::all_reduce:
      return all_reduce_sent(d, element, size, rank);
    case Operation::reduce_scatter:
    case Operation::all_to_all:
      return bytes / size * (size - 1);
    case Operation::all_gather:
      return bytes * (size - 1);
    case Operation::broadcast:
    case Operation::scatter:
      return rank == d.root ? bytes * (size - 1) : 0;
    case Operation::reduce:
    case Operation::gather:
      return rank == d.root ? 0 : bytes;
    case Operation::message:
      return bytes;
    case Operation::barrier:
    case Operation::split:
      break;
  }
  return 0;
}

}  // namespace trident
