#include "parallel/collectives/fetched.h"

#include <algorithm>
#include <vector>

namespace trident::fetched {
namespace {

// The number of bytes that are fetched at a time to be added; they stay in a core's own cache.
constexpr std::size_t piece_bytes = std::size_t{256} << 10;

}  // namespace

void all_reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const int size = exchange.size(), self = exchange.rank();
  const std::size_t element = size_of(exchange.descriptor().dtype);
  const auto bytes_of = [&](std::int64_t count) {
    return static_cast<std::size_t>(count) * element;
  };
  const Segment own = segment_of(n, size, self);
  exchange.count_sent(bytes_of(n - own.size()) +
                      bytes_of(own.size()) * static_cast<std::size_t>(size - 1));
  SharedRendezvous& rendezvous = *exchange.rendezvous();
  exchange.arrive(data, nullptr);
  std::vector<const std::byte*> addresses;  // in each member's own memory
  for (int r = 0; r < size; ++r) addresses.push_back(rendezvous.address(r));

  const auto piece =
      std::min(own.size(), static_cast<std::int64_t>(piece_bytes / element) / (size - 1));
  for (std::int64_t begin = own.begin; begin < own.end; begin += piece) {
    const std::int64_t count = std::min(piece, own.end - begin);
    std::vector<const void*> sources;
    std::byte* place = staging;
    for (int r = 0; r < size; ++r) {
      if (r == self) {
        sources.push_back(data + bytes_of(begin));
        continue;
      }
      exchange.fetch(r, place, addresses[static_cast<std::size_t>(r)] + bytes_of(begin),
                     bytes_of(count));
      sources.push_back(place);
      place += bytes_of(count);
    }
    void* const result[] = {data + bytes_of(begin)};
    exchange.reduce(sources, result, count);
  }
  rendezvous.finish();
  exchange.arrive(nullptr, nullptr);
  for (int i = 1; i < size; ++i) {
    const int peer = (self + i) % size;
    const Segment theirs = segment_of(n, size, peer);
    exchange.fetch(peer, data + bytes_of(theirs.begin),
                   addresses[static_cast<std::size_t>(peer)] + bytes_of(theirs.begin),
                   bytes_of(theirs.size()));
  }
  rendezvous.finish();
  exchange.arrive_without_buffers();  // no member reads this one's tensor any more
}

}  // namespace trident::fetched
