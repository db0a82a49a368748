#include "parallel/collectives/direct.h"

#include <cstring>
#include <vector>

#include "kernels/reduce.h"

namespace trident::direct {
namespace {

using Transfers = std::vector<Exchange::Transfer>;

std::size_t element(const Exchange& exchange) {
  return size_of(exchange.descriptor().dtype);
}

std::size_t bytes_of(const Exchange& exchange, std::int64_t n) {
  return static_cast<std::size_t>(n) * element(exchange);
}

// Calls f(peer) for the other members, starting after this one, so that not all members turn to
// member 0 first.
template <class F>
void for_each_peer(const Exchange& exchange, F&& f) {
  for (int i = 1; i < exchange.size(); ++i) f((exchange.rank() + i) % exchange.size());
}

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, bytes);
}

// Receives the others' parts of n elements, as views by group rank.
Transfers receive_parts(Exchange& exchange, std::int64_t n, std::byte* staging) {
  Transfers parts(static_cast<std::size_t>(exchange.size()));
  std::size_t place = 0;
  for_each_peer(exchange, [&](int peer) {
    std::byte* at = staging == nullptr ? nullptr : staging + bytes_of(exchange, n) * place++;
    parts[static_cast<std::size_t>(peer)] = exchange.receive_view(peer, at, bytes_of(exchange, n));
  });
  return parts;
}

// result [n] := the reduction of `own` and the parts, in group-rank order. Releases the parts.
void reduce_parts(Exchange& exchange, Transfers parts, const std::byte* own, std::byte* result,
                  std::int64_t n) {
  std::vector<const void*> sources(parts.size());
  Transfers others;
  for (int r = 0; r < exchange.size(); ++r) {
    if (r == exchange.rank()) continue;
    others.push_back(std::move(parts[static_cast<std::size_t>(r)]));
  }
  exchange.wait(others);
  for (const auto& other : others) {
    sources[static_cast<std::size_t>(other.peer)] = other.request->view();
  }
  sources[static_cast<std::size_t>(exchange.rank())] = own;
  const Descriptor& d = exchange.descriptor();
  trident::reduce(result, sources, n, d.dtype, d.reduce_op, exchange.size());
}

}  // namespace

std::int64_t all_reduce_staging(const CollectiveCase& c) {
  return c.views_need_staging ? segment_of(c.n, c.members, c.rank).size() * (c.members - 1) : 0;
}

std::int64_t reduce_scatter_staging(const CollectiveCase& c) {
  return c.views_need_staging ? c.n * (c.members - 1) : 0;
}

std::int64_t reduce_staging(const CollectiveCase& c) {
  return c.rank == c.root ? reduce_scatter_staging(c) : 0;
}

void all_reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const int size = exchange.size();
  const auto at = [&](int i) { return data + bytes_of(exchange, segment_of(n, size, i).begin); };
  const auto bytes = [&](int i) { return bytes_of(exchange, segment_of(n, size, i).size()); };
  const int self = exchange.rank();
  {
    Transfers parts = receive_parts(exchange, segment_of(n, size, self).size(), staging);
    Transfers sends;
    for_each_peer(exchange,
                  [&](int peer) { sends.push_back(exchange.send(peer, at(peer), bytes(peer))); });
    reduce_parts(exchange, std::move(parts), at(self), at(self), segment_of(n, size, self).size());
    exchange.wait(sends);
  }
  Transfers transfers;
  for_each_peer(exchange, [&](int peer) {
    transfers.push_back(exchange.receive(peer, at(peer), bytes(peer)));
  });
  for_each_peer(exchange,
                [&](int peer) { transfers.push_back(exchange.send(peer, at(self), bytes(self))); });
  exchange.wait(transfers);
}

void reduce_scatter(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  const auto part = [&](int i) { return input + bytes * static_cast<std::size_t>(i); };
  Transfers parts = receive_parts(exchange, n, staging);
  Transfers sends;
  for_each_peer(exchange,
                [&](int peer) { sends.push_back(exchange.send(peer, part(peer), bytes)); });
  reduce_parts(exchange, std::move(parts), part(exchange.rank()), output, n);
  exchange.wait(sends);
}

void reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  exchange.announce();
  const int root = exchange.descriptor().root;
  if (exchange.rank() == root) {
    reduce_parts(exchange, receive_parts(exchange, n, staging), data, data, n);
  } else {
    Exchange::Transfer sent = exchange.send(root, data, bytes_of(exchange, n));
    exchange.wait(sent);
  }
}

void all_gather(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  const auto part = [&](int i) { return output + bytes * static_cast<std::size_t>(i); };
  Transfers transfers;
  for_each_peer(exchange,
                [&](int peer) { transfers.push_back(exchange.receive(peer, part(peer), bytes)); });
  for_each_peer(exchange,
                [&](int peer) { transfers.push_back(exchange.send(peer, input, bytes)); });
  copy(part(exchange.rank()), input, bytes);
  exchange.wait(transfers);
}

void broadcast(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  exchange.announce();
  const int root = exchange.descriptor().root;
  const std::size_t bytes = bytes_of(exchange, n);
  Transfers transfers;
  if (exchange.rank() == root) {
    for_each_peer(exchange,
                  [&](int peer) { transfers.push_back(exchange.send(peer, data, bytes)); });
  } else {
    transfers.push_back(exchange.receive(root, data, bytes));
  }
  exchange.wait(transfers);
}

void gather(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  exchange.announce();
  const int root = exchange.descriptor().root;
  const std::size_t bytes = bytes_of(exchange, n);
  Transfers transfers;
  if (exchange.rank() == root) {
    const auto part = [&](int i) { return output + bytes * static_cast<std::size_t>(i); };
    for_each_peer(exchange, [&](int peer) {
      transfers.push_back(exchange.receive(peer, part(peer), bytes));
    });
    copy(part(root), input, bytes);
  } else {
    transfers.push_back(exchange.send(root, input, bytes));
  }
  exchange.wait(transfers);
}

void scatter(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  exchange.announce();
  const int root = exchange.descriptor().root;
  const std::size_t bytes = bytes_of(exchange, n);
  Transfers transfers;
  if (exchange.rank() == root) {
    const auto part = [&](int i) { return input + bytes * static_cast<std::size_t>(i); };
    for_each_peer(exchange,
                  [&](int peer) { transfers.push_back(exchange.send(peer, part(peer), bytes)); });
    copy(output, part(root), bytes);
  } else {
    transfers.push_back(exchange.receive(root, output, bytes));
  }
  exchange.wait(transfers);
}

void all_to_all(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  const auto offset = [&](int i) { return bytes * static_cast<std::size_t>(i); };
  Transfers transfers;
  for_each_peer(exchange, [&](int peer) {
    transfers.push_back(exchange.receive(peer, output + offset(peer), bytes));
  });
  for_each_peer(exchange, [&](int peer) {
    transfers.push_back(exchange.send(peer, input + offset(peer), bytes));
  });
  copy(output + offset(exchange.rank()), input + offset(exchange.rank()), bytes);
  exchange.wait(transfers);
}

void all_to_all_v(Exchange& exchange, const Buffers& buffers) {
  const CountsTable& table = exchange.counts();
  const int self = exchange.rank();
  const auto from = [&](int peer) {
    return buffers.input + bytes_of(exchange, table.input_begin(self, peer));
  };
  const auto to = [&](int peer) {
    return buffers.output + bytes_of(exchange, table.output_begin(self, peer));
  };
  Transfers transfers;
  for_each_peer(exchange, [&](int peer) {
    transfers.push_back(
        exchange.receive(peer, to(peer), bytes_of(exchange, table.sent(peer, self))));
  });
  for_each_peer(exchange, [&](int peer) {
    transfers.push_back(
        exchange.send(peer, from(peer), bytes_of(exchange, table.sent(self, peer))));
  });
  copy(to(self), from(self), bytes_of(exchange, table.sent(self, self)));
  exchange.wait(transfers);
}

void barrier(Exchange& exchange, const Buffers&) {
  const int size = exchange.size();
  for (int distance = 1; distance < size; distance *= 2) {
    Transfers transfers;
    transfers.push_back(exchange.receive((exchange.rank() + size - distance) % size, nullptr, 0));
    transfers.push_back(exchange.send((exchange.rank() + distance) % size, nullptr, 0));
    exchange.wait(transfers);
  }
}

}  // namespace trident::direct
