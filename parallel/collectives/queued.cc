#include "parallel/collectives/queued.h"

#include <vector>

#include "parallel/collectives/communicator.h"

namespace trident::queued {
namespace {

using Parts = std::vector<Communicator::Part>;

std::size_t bytes_of(const Exchange& exchange, std::int64_t n) {
  return static_cast<std::size_t>(n) * size_of(exchange.descriptor().dtype);
}

// Calls f(peer) for the other members, starting after this one.
template <class F>
void for_each_peer(const Exchange& exchange, F&& f) {
  for (int i = 1; i < exchange.size(); ++i) f((exchange.rank() + i) % exchange.size());
}

std::byte* part(const std::byte* data, std::size_t bytes, int i) {
  return const_cast<std::byte*>(data) + bytes * static_cast<std::size_t>(i);
}

void move(Exchange& exchange, const Parts& sends, const Parts& receives) {
  exchange.communicator()->exchange(exchange.access(), sends, receives);
}

// result [n] := the reduction, in group-rank order, of `own` and the others' n elements, which are
// received to `staging`. Makes the given sends at the same time.
void reduce_received(Exchange& exchange, const Parts& sends, const std::byte* own,
                     std::byte* result, std::int64_t n, std::byte* staging) {
  std::vector<const void*> sources(static_cast<std::size_t>(exchange.size()));
  sources[static_cast<std::size_t>(exchange.rank())] = own;
  Parts receives;
  for_each_peer(exchange, [&](int peer) {
    std::byte* const place =
        part(staging, bytes_of(exchange, n), static_cast<int>(receives.size()));
    sources[static_cast<std::size_t>(peer)] = place;
    receives.push_back({peer, place, bytes_of(exchange, n)});
  });
  move(exchange, sends, receives);
  void* const places[] = {result};
  exchange.reduce(sources, places, n);
}

}  // namespace

std::int64_t all_reduce_staging(const CollectiveCase& c) {
  return c.library_reduces ? 0 : segment_of(c.n, c.members, c.rank).size() * (c.members - 1);
}

std::int64_t reduce_scatter_staging(const CollectiveCase& c) {
  return c.library_reduces ? 0 : c.n * (c.members - 1);
}

std::int64_t reduce_staging(const CollectiveCase& c) {
  return c.rank == c.root ? c.n * (c.members - 1) : 0;
}

void all_reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const int size = exchange.size(), self = exchange.rank();
  const Segment own = segment_of(n, size, self);
  const auto at = [&](int i) { return data + bytes_of(exchange, segment_of(n, size, i).begin); };
  const auto bytes = [&](int i) { return bytes_of(exchange, segment_of(n, size, i).size()); };
  exchange.count_sent(bytes_of(exchange, n - own.size()) +
                      bytes(self) * static_cast<std::size_t>(size - 1));
  exchange.compare();
  const Descriptor& d = exchange.descriptor();
  if (exchange.reduced_by_library()) {
    return exchange.communicator()->all_reduce(exchange.access(), data, n, d.dtype, d.reduce_op);
  }
  Parts segments, results, others;
  for_each_peer(exchange, [&](int peer) {
    segments.push_back({peer, at(peer), bytes(peer)});
    results.push_back({peer, at(self), bytes(self)});
    others.push_back({peer, at(peer), bytes(peer)});
  });
  reduce_received(exchange, segments, at(self), at(self), own.size(), staging);
  move(exchange, results, others);
}

void reduce_scatter(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  exchange.compare();
  const Descriptor& d = exchange.descriptor();
  if (exchange.reduced_by_library()) {
    return exchange.communicator()->reduce_scatter(exchange.access(), input, output, n, d.dtype,
                                                   d.reduce_op);
  }
  Parts sends;
  for_each_peer(exchange, [&](int peer) {
    sends.push_back({peer, part(input, bytes, peer), bytes});
  });
  reduce_received(exchange, sends, part(input, bytes, exchange.rank()), output, n, staging);
}

void reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const int root = exchange.descriptor().root;
  exchange.compare();
  if (exchange.rank() == root) {
    reduce_received(exchange, {}, data, data, n, staging);
  } else {
    exchange.count_sent(bytes_of(exchange, n));
    move(exchange, {{root, data, bytes_of(exchange, n)}}, {});
  }
}

void all_gather(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  exchange.compare();
  exchange.communicator()->all_gather(exchange.access(), input, output, bytes);
}

void broadcast(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const int root = exchange.descriptor().root;
  const std::size_t bytes = bytes_of(exchange, n);
  if (exchange.rank() == root) {
    exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  }
  exchange.compare();
  exchange.communicator()->broadcast(exchange.access(), data, bytes, root);
}

void gather(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const int root = exchange.descriptor().root;
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.compare();
  if (exchange.rank() != root) {
    exchange.count_sent(bytes);
    return move(exchange, {{root, part(input, 0, 0), bytes}}, {});
  }
  Parts receives;
  for_each_peer(exchange, [&](int peer) {
    receives.push_back({peer, part(output, bytes, peer), bytes});
  });
  move(exchange, {}, receives);
  exchange.copy(part(output, bytes, root), input, bytes);
}

void scatter(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const int root = exchange.descriptor().root;
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.compare();
  if (exchange.rank() != root) return move(exchange, {}, {{root, output, bytes}});
  exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  Parts sends;
  for_each_peer(exchange, [&](int peer) {
    sends.push_back({peer, part(input, bytes, peer), bytes});
  });
  move(exchange, sends, {});
  exchange.copy(output, part(input, bytes, root), bytes);
}

void all_to_all(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  exchange.compare();
  Parts sends, receives;
  for_each_peer(exchange, [&](int peer) {
    sends.push_back({peer, part(input, bytes, peer), bytes});
    receives.push_back({peer, part(output, bytes, peer), bytes});
  });
  move(exchange, sends, receives);
  exchange.copy(part(output, bytes, exchange.rank()), part(input, bytes, exchange.rank()), bytes);
}

void all_to_all_v(Exchange& exchange, const Buffers& buffers) {
  const CountsTable& table = exchange.counts();
  const int self = exchange.rank();
  const auto bytes = [&](int from, int to) { return bytes_of(exchange, table.sent(from, to)); };
  const auto at = [&](const std::byte* data, std::int64_t element) {
    return const_cast<std::byte*>(data) + bytes_of(exchange, element);
  };
  exchange.count_sent(bytes_of(exchange, table.input(self) - table.sent(self, self)));
  exchange.compare();
  Parts sends, receives;
  for_each_peer(exchange, [&](int peer) {
    if (table.sent(self, peer) > 0) {
      sends.push_back({peer, at(buffers.input, table.input_begin(self, peer)), bytes(self, peer)});
    }
    if (table.sent(peer, self) > 0) {
      receives.push_back(
          {peer, at(buffers.output, table.output_begin(self, peer)), bytes(peer, self)});
    }
  });
  move(exchange, sends, receives);
  exchange.copy(at(buffers.output, table.output_begin(self, self)),
                at(buffers.input, table.input_begin(self, self)), bytes(self, self));
}

}  // namespace trident::queued
