#include "kernels/peers.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/kernels.h"

namespace trident::cpu {
namespace {

// Copies with stores that bypass the caches: the destination is not read first, and other data
// stays cached.
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

// Above this size the data of all members does not fit in the caches anyway.
constexpr std::size_t streamed_bytes = std::size_t{8} << 20;

}  // namespace

void copy_peer(const Access&, void* to, const void* from, std::size_t bytes) {
  if (to == from || bytes == 0) return;
  if (bytes >= streamed_bytes) {
    stream(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
    _mm_sfence();
  } else {
    std::memmove(to, from, bytes);
  }
}

// Works on one block at a time, which stays in the first-level cache.
void reduce_peers(const Access&, const ReducePeers& args) {
  const std::size_t element = size_of(args.dtype);
  const auto bytes_of = [&](std::int64_t n) { return static_cast<std::size_t>(n) * element; };
  const bool streams = bytes_of(args.count) * args.sources.size() >= streamed_bytes;
  alignas(64) std::byte block[8192];
  const auto step = static_cast<std::int64_t>(sizeof block / element);
  std::vector<const void*> sources(args.sources.size());
  for (std::int64_t i = 0; i < args.count; i += step) {
    const std::int64_t n = std::min(step, args.count - i);
    for (std::size_t r = 0; r < sources.size(); ++r) {
      sources[r] = static_cast<const std::byte*>(args.sources[r]) + bytes_of(i);
    }
    reduce(block, sources, n, args.dtype, args.op, args.divisor);
    for (void* const place : args.places) {
      std::byte* const to = static_cast<std::byte*>(place) + bytes_of(i);
      if (streams) {
        stream(to, block, bytes_of(n));
      } else {
        std::memcpy(to, block, bytes_of(n));
      }
    }
  }
  if (streams) _mm_sfence();
}

}  // namespace trident::cpu
