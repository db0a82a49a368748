#include "parallel/collectives/shared.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace trident::shared {
namespace {

std::size_t bytes_of(const Exchange& exchange, std::int64_t n) {
  return static_cast<std::size_t>(n) * size_of(exchange.descriptor().dtype);
}

// A meeting from arrival to departure; an exception in between leaves nobody waiting.
class Visit {
 public:
  Visit(Exchange& exchange, const void* input, void* output) : exchange_(exchange) {
    exchange.meet(input, output);
    open_ = true;
  }
  ~Visit() {
    if (open_) exchange_.meeting()->finish();
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  // Until nobody uses this member's buffers any more.
  void leave() {
    open_ = false;
    exchange_.leave();
  }

 private:
  Exchange& exchange_;
  bool open_ = false;
};

// Elements [begin, end) of every member's input, reduced in group-rank order to the places given.
void reduce_to(const Exchange& exchange, Segment segment, std::span<void* const> places) {
  std::vector<const void*> sources;
  for (int r = 0; r < exchange.size(); ++r) {
    sources.push_back(exchange.input(r) + bytes_of(exchange, segment.begin));
  }
  exchange.reduce(sources, places, segment.size());
}

// What fits on a member's desk is copied there, so that nobody waits twice. The host's memory only:
// a GPU's queue has to know when the others are done.
bool fits_slot(const Exchange& exchange, std::size_t bytes) {
  return exchange.on_host() && bytes <= exchange.meeting()->slot_bytes();
}

}  // namespace

void all_reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const int size = exchange.size();
  const Segment own = segment_of(n, size, exchange.rank());
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.count_sent(bytes_of(exchange, n - own.size()) +
                      bytes_of(exchange, own.size()) * static_cast<std::size_t>(size - 1));
  if (fits_slot(exchange, bytes)) {  // everybody adds everything
    std::byte* const slot = exchange.meeting()->slot();
    std::memcpy(slot, data, bytes);
    const Visit visit(exchange, slot, nullptr);
    void* const place[] = {data};
    reduce_to(exchange, {0, n}, place);
    return;
  }
  Visit visit(exchange, data, data);
  std::vector<void*> places;
  for (int i = 0; i < size; ++i) {
    places.push_back(exchange.output((exchange.rank() + i) % size) + bytes_of(exchange, own.begin));
  }
  reduce_to(exchange, own, places);
  visit.leave();
}

void reduce_scatter(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  exchange.count_sent(bytes_of(exchange, n) * static_cast<std::size_t>(exchange.size() - 1));
  Visit visit(exchange, input, output);
  void* const place[] = {output};
  reduce_to(exchange, {n * exchange.rank(), n * (exchange.rank() + 1)}, place);
  visit.leave();
}

void reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  Visit visit(exchange, data, data);
  if (exchange.rank() == exchange.descriptor().root) {
    void* const place[] = {data};
    reduce_to(exchange, {0, n}, place);
  } else {
    exchange.count_sent(bytes_of(exchange, n));
  }
  visit.leave();
}

void all_gather(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  const bool small = fits_slot(exchange, bytes);
  if (small) std::memcpy(exchange.meeting()->slot(), input, bytes);
  Visit visit(exchange, small ? exchange.meeting()->slot() : input, nullptr);
  for (int i = 0; i < exchange.size(); ++i) {
    const int member = (exchange.rank() + i) % exchange.size();
    exchange.copy(output + bytes * static_cast<std::size_t>(member), exchange.input(member), bytes);
  }
  if (!small) visit.leave();
}

void broadcast(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  const int root = exchange.descriptor().root;
  Visit visit(exchange, data, data);
  if (exchange.rank() == root) {
    exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  } else {
    exchange.copy(data, exchange.input(root), bytes);
  }
  visit.leave();
}

void gather(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  const int root = exchange.descriptor().root;
  Visit visit(exchange, input, output);
  if (exchange.rank() != root) exchange.count_sent(bytes);
  exchange.copy(exchange.output(root) + bytes * static_cast<std::size_t>(exchange.rank()), input,
                bytes);
  visit.leave();
}

void scatter(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  const int root = exchange.descriptor().root;
  Visit visit(exchange, input, output);
  if (exchange.rank() == root) {
    exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  }
  exchange.copy(output, exchange.input(root) + bytes * static_cast<std::size_t>(exchange.rank()),
                bytes);
  visit.leave();
}

void all_to_all(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  Visit visit(exchange, input, output);
  for (int i = 0; i < exchange.size(); ++i) {
    const int member = (exchange.rank() + i) % exchange.size();
    exchange.copy(output + bytes * static_cast<std::size_t>(member),
                  exchange.input(member) + bytes * static_cast<std::size_t>(exchange.rank()),
                  bytes);
  }
  visit.leave();
}

void barrier(Exchange& exchange, const Buffers&) {
  Visit visit(exchange, nullptr, nullptr);
  if (!exchange.on_host()) visit.leave();  // the others look at this member's events
}

}  // namespace trident::shared
