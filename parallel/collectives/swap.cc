#include "parallel/collectives/swap.h"

#include <memory>
#include <utility>

namespace trident::swap {

// The tensor is small enough for a buffer of its own. The staging memory has direct's size
// whichever implementation runs, and is smaller than the tensor.
void all_reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const std::size_t bytes = static_cast<std::size_t>(n) * size_of(exchange.descriptor().dtype);
  const int self = exchange.rank(), peer = 1 - self;
  const auto other = std::make_unique_for_overwrite<std::byte[]>(bytes);
  Exchange::Transfer transfers[] = {exchange.receive(peer, other.get(), bytes),
                                    exchange.send(peer, data, bytes)};
  exchange.wait(transfers);
  const void* sources[] = {data, other.get()};
  if (peer < self) std::swap(sources[0], sources[1]);
  void* const place[] = {data};
  exchange.reduce(sources, place, n);
}

}  // namespace trident::swap
