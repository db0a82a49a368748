#include "parallel/collectives/shared.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "parallel/collectives/reduce_kernels.h"

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
  const std::byte* input(int member) const { return exchange_.meeting()->input(member); }
  std::byte* output(int member) const { return exchange_.meeting()->output(member); }

 private:
  Exchange& exchange_;
  bool open_ = false;
};

// Writes around the caches: the lines need not be read first, and other data stays cached.
void stream(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t head =
      std::min(bytes, static_cast<std::size_t>(-reinterpret_cast<std::uintptr_t>(to) % 16));
  std::memcpy(to, from, head);
  std::size_t i = head;
  for (; i + 16 <= bytes; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
  std::memcpy(to + i, from + i, bytes - i);
}

// Beyond this the data of all members leaves the caches anyway.
constexpr std::size_t streamed_bytes = std::size_t{8} << 20;

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to == from || bytes == 0) return;
  if (bytes >= streamed_bytes) {
    stream(to, from, bytes);
    _mm_sfence();
  } else {
    std::memmove(to, from, bytes);
  }
}

// Elements [begin, end) of every member's input, reduced in group-rank order; the result goes to
// the places given, a block that stays in the first-level cache at a time.
void reduce_to(const Exchange& exchange, const Visit& visit, Segment segment,
               std::span<std::byte* const> places) {
  const Descriptor& d = exchange.descriptor();
  const auto size = static_cast<std::size_t>(exchange.size());
  const bool streams = bytes_of(exchange, segment.size()) * size >= streamed_bytes;
  alignas(64) std::byte block[8192];
  const auto step = static_cast<std::int64_t>(sizeof block / size_of(d.dtype));
  std::vector<const void*> sources(size);
  for (std::int64_t i = segment.begin; i < segment.end; i += step) {
    const std::int64_t n = std::min(step, segment.end - i);
    for (std::size_t r = 0; r < size; ++r) {
      sources[r] = visit.input(static_cast<int>(r)) + bytes_of(exchange, i);
    }
    trident::reduce(block, sources, n, d.dtype, d.reduce_op, exchange.size());
    for (std::byte* place : places) {
      std::byte* const to = place + bytes_of(exchange, i - segment.begin);
      if (streams) {
        stream(to, block, bytes_of(exchange, n));
      } else {
        std::memcpy(to, block, bytes_of(exchange, n));
      }
    }
  }
  if (streams) _mm_sfence();
}

}  // namespace

void all_reduce(Exchange& exchange, std::byte* data, std::int64_t n) {
  const int size = exchange.size();
  const Segment own = segment_of(n, size, exchange.rank());
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.count_sent(bytes_of(exchange, n - own.size()) +
                      bytes_of(exchange, own.size()) * static_cast<std::size_t>(size - 1));
  if (bytes <= Meeting::desk_bytes) {  // everybody adds everything: nobody waits twice
    std::byte* const desk = exchange.meeting()->desk();
    std::memcpy(desk, data, bytes);
    const Visit visit(exchange, desk, nullptr);
    std::byte* const place[] = {data};
    reduce_to(exchange, visit, {0, n}, place);
    return;
  }
  Visit visit(exchange, data, data);
  std::vector<std::byte*> places;
  for (int i = 0; i < size; ++i) {
    places.push_back(visit.output((exchange.rank() + i) % size) + bytes_of(exchange, own.begin));
  }
  reduce_to(exchange, visit, own, places);
  visit.leave();
}

void reduce_scatter(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n) {
  exchange.count_sent(bytes_of(exchange, n) * static_cast<std::size_t>(exchange.size() - 1));
  Visit visit(exchange, input, output);
  std::byte* const place[] = {output};
  reduce_to(exchange, visit, {n * exchange.rank(), n * (exchange.rank() + 1)}, place);
  visit.leave();
}

void reduce(Exchange& exchange, std::byte* data, std::int64_t n) {
  Visit visit(exchange, data, data);
  if (exchange.rank() == exchange.descriptor().root) {
    std::byte* const place[] = {data};
    reduce_to(exchange, visit, {0, n}, place);
  } else {
    exchange.count_sent(bytes_of(exchange, n));
  }
  visit.leave();
}

void all_gather(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n) {
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  const bool small = bytes <= Meeting::desk_bytes;
  if (small) std::memcpy(exchange.meeting()->desk(), input, bytes);
  Visit visit(exchange, small ? exchange.meeting()->desk() : input, nullptr);
  for (int i = 0; i < exchange.size(); ++i) {
    const int member = (exchange.rank() + i) % exchange.size();
    copy(output + bytes * static_cast<std::size_t>(member), visit.input(member), bytes);
  }
  if (!small) visit.leave();
}

void broadcast(Exchange& exchange, std::byte* data, std::int64_t n) {
  const std::size_t bytes = bytes_of(exchange, n);
  const int root = exchange.descriptor().root;
  Visit visit(exchange, data, data);
  if (exchange.rank() == root) {
    exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  } else {
    copy(data, visit.input(root), bytes);
  }
  visit.leave();
}

void gather(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n) {
  const std::size_t bytes = bytes_of(exchange, n);
  const int root = exchange.descriptor().root;
  Visit visit(exchange, input, output);
  if (exchange.rank() != root) exchange.count_sent(bytes);
  copy(visit.output(root) + bytes * static_cast<std::size_t>(exchange.rank()), input, bytes);
  visit.leave();
}

void scatter(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n) {
  const std::size_t bytes = bytes_of(exchange, n);
  const int root = exchange.descriptor().root;
  Visit visit(exchange, input, output);
  if (exchange.rank() == root) {
    exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  }
  copy(output, visit.input(root) + bytes * static_cast<std::size_t>(exchange.rank()), bytes);
  visit.leave();
}

void all_to_all(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n) {
  const std::size_t bytes = bytes_of(exchange, n);
  exchange.count_sent(bytes * static_cast<std::size_t>(exchange.size() - 1));
  Visit visit(exchange, input, output);
  for (int i = 0; i < exchange.size(); ++i) {
    const int member = (exchange.rank() + i) % exchange.size();
    copy(output + bytes * static_cast<std::size_t>(member),
         visit.input(member) + bytes * static_cast<std::size_t>(exchange.rank()), bytes);
  }
  visit.leave();
}

void barrier(Exchange& exchange) {
  const Visit visit(exchange, nullptr, nullptr);
}

}  // namespace trident::shared
