#include "parallel/collectives/shared.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace trident::shared {
namespace {

std::size_t bytes_of(const Exchange& exchange, std::int64_t n) {
  return static_cast<std::size_t>(n) * size_of(exchange.descriptor().dtype);
}

// A rendezvous from arrival to departure. An exception in between leaves no other member waiting.
class RendezvousScope {
 public:
  RendezvousScope(Exchange& exchange, const void* input, void* output) : exchange_(exchange) {
    exchange.arrive(input, output);
    open_ = true;
  }
  ~RendezvousScope() {
    if (open_) exchange_.rendezvous()->finish();
  }
  RendezvousScope(const RendezvousScope&) = delete;
  RendezvousScope& operator=(const RendezvousScope&) = delete;
  // Waits until no member uses this member's buffers any more.
  void leave() {
    open_ = false;
    exchange_.leave();
  }

 private:
  Exchange& exchange_;
  bool open_ = false;
};

// Reduces elements [begin, end) of every member's input, in group-rank order, to the given places.
void reduce_to(const Exchange& exchange, Segment segment, std::span<void* const> places) {
  std::vector<const void*> sources;
  for (int r = 0; r < exchange.size(); ++r) {
    sources.push_back(exchange.input(r) + bytes_of(exchange, segment.begin));
  }
  exchange.reduce(sources, places, segment.size());
}

// Whether the data fits into a member's slot. It is then copied there, so that no member waits
// twice. This holds for host memory only: a GPU's queue has to know when the others are done.
bool fits_slot(const Exchange& exchange, std::size_t bytes) {
  return exchange.on_host() && bytes <= exchange.rendezvous()->slot_bytes();
}

}  // namespace

void all_reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const int size = exchange.size();
  const Segment own = segment_of(n, size, exchange.rank());
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.count_sent(bytes_of(exchange, n - own.size()) +
                      bytes_of(exchange, own.size()) * static_cast<std::size_t>(size - 1));
  if (fits_slot(exchange, bytes)) {  // every member adds everything
    std::byte* const slot = exchange.rendezvous()->slot();
    std::memcpy(slot, data, bytes);
    const RendezvousScope scope(exchange, slot, nullptr);
    void* const place[] = {data};
    reduce_to(exchange, {0, n}, place);
    return;
  }
  RendezvousScope scope(exchange, data, data);
  std::vector<void*> places;
  for (int i = 0; i < size; ++i) {
    places.push_back(exchange.output((exchange.rank() + i) % size) + bytes_of(exchange, own.begin));
  }
  reduce_to(exchange, own, places);
  scope.leave();
}

void reduce_scatter(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  exchange.count_sent(bytes_of(exchange, n) * static_cast<std::size_t>(exchange.size() - 1));
  RendezvousScope scope(exchange, input, output);
  void* const place[] = {output};
  reduce_to(exchange, {n * exchange.rank(), n * (exchange.rank() + 1)}, place);
  scope.leave();
}

void reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  RendezvousScope scope(exchange, data, data);
  if (exchange.rank() == exchange.descriptor().root) {
    void* const place[] = {data};
    reduce_to(exchange, {0, n}, place);
  } else {
    exchange.count_sent(bytes_of(exchange, n));
  }
  scope.leave();
}

void all_gather(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  const bool small = fits_slot(exchange, bytes);
  if (small) std::memcpy(exchange.rendezvous()->slot(), input, bytes);
  RendezvousScope scope(exchange, small ? exchange.rendezvous()->slot() : input, nullptr);
  for (int i = 0; i < exchange.size(); ++i) {
    const int member = (exchange.rank() + i) % exchange.size();
    exchange.copy(output + bytes * static_cast<std::size_t>(member), exchange.input(member), bytes);
  }
  if (!small) scope.leave();
}

void broadcast(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  const int root = exchange.descriptor().root;
  RendezvousScope scope(exchange, data, data);
  if (exchange.rank() == root) {
    exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  } else {
    exchange.copy(data, exchange.input(root), bytes);
  }
  scope.leave();
}

void gather(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  const int root = exchange.descriptor().root;
  RendezvousScope scope(exchange, input, output);
  if (exchange.rank() != root) exchange.count_sent(bytes);
  exchange.copy(exchange.output(root) + bytes * static_cast<std::size_t>(exchange.rank()), input,
                bytes);
  scope.leave();
}

void scatter(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  const int root = exchange.descriptor().root;
  RendezvousScope scope(exchange, input, output);
  if (exchange.rank() == root) {
    exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  }
  exchange.copy(output, exchange.input(root) + bytes * static_cast<std::size_t>(exchange.rank()),
                bytes);
  scope.leave();
}

void all_to_all(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  RendezvousScope scope(exchange, input, output);
  for (int i = 0; i < exchange.size(); ++i) {
    const int member = (exchange.rank() + i) % exchange.size();
    exchange.copy(output + bytes * static_cast<std::size_t>(member),
                  exchange.input(member) + bytes * static_cast<std::size_t>(exchange.rank()),
                  bytes);
  }
  scope.leave();
}

void all_to_all_v(Exchange& exchange, const Buffers& buffers) {
  const CountsTable& table = exchange.counts();
  const int self = exchange.rank();
  exchange.count_sent(bytes_of(exchange, table.input(self) - table.sent(self, self)));
  RendezvousScope scope(exchange, buffers.input, buffers.output);
  for (int i = 0; i < exchange.size(); ++i) {
    const int member = (self + i) % exchange.size();
    exchange.copy(buffers.output + bytes_of(exchange, table.output_begin(self, member)),
                  exchange.input(member) + bytes_of(exchange, table.input_begin(member, self)),
                  bytes_of(exchange, table.sent(member, self)));
  }
  scope.leave();
}

void barrier(Exchange& exchange, const Buffers&) {
  RendezvousScope scope(exchange, nullptr, nullptr);
  if (!exchange.on_host()) scope.leave();  // the others use this member's events
}

}  // namespace trident::shared
