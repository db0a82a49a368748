#include "parallel/collectives/shared_memory_slots.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace trident::slots {
namespace {

std::size_t bytes_of(const Exchange& exchange, std::int64_t n) {
  return static_cast<std::size_t>(n) * size_of(exchange.descriptor().dtype);
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, bytes);
}

// Copies around the caches, for messages that are larger than the caches. The lines of `to` need
// not be read first, and the slots stay in the caches.
void stream(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t line = 64;
  const std::size_t head = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % line);
  std::memcpy(to, from, head);
  std::size_t i = head;
  for (; i + line <= bytes; i += line) {
    for (std::size_t j = i; j < i + line; j += sizeof(__m128i)) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + j),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j)));
    }
  }
  std::memcpy(to + i, from + i, bytes - i);
  _mm_sfence();  // a thread that is notified next sees the data
}

// The number of elements that fit where a slot is split into `parts`, each at a multiple of a cache
// line.
std::int64_t fitting(const Exchange& exchange, std::size_t parts) {
  const std::size_t bytes = exchange.rendezvous()->slot_bytes() / parts / 64 * 64;
  return static_cast<std::int64_t>(bytes / size_of(exchange.descriptor().dtype));
}

// One rendezvous for each `step` of the n elements, at least one. stage(begin, end, slot) copies
// this member's part of [begin, end) to its slot. consume(begin, end) reads the others' parts from
// their slots: exchange.input(member). A slot stays unchanged until its owner's next rendezvous, so
// that no member waits twice.
template <class Stage, class Consume>
void in_rounds(Exchange& exchange, std::int64_t n, std::int64_t step, Stage stage,
               Consume consume) {
  std::int64_t begin = 0;
  do {
    const std::int64_t end = std::min(n, begin + step);
    stage(begin, end, exchange.rendezvous()->slot());
    exchange.arrive(nullptr, nullptr);
    consume(begin, end);
    exchange.rendezvous()->finish();
    begin = end;
  } while (begin < n);
}

template <class F>
void for_each_peer(const Exchange& exchange, F&& f) {
  for (int i = 1; i < exchange.size(); ++i) f((exchange.rank() + i) % exchange.size());
}

// Every place := the reduction in group-rank order of the members' elements: `own`, and the
// elements at `offset` in the others' slots.
void reduce_to(const Exchange& exchange, std::span<void* const> places, const std::byte* own,
               std::size_t offset, std::int64_t count) {
  std::vector<const void*> sources;
  for (int r = 0; r < exchange.size(); ++r) {
    sources.push_back(r == exchange.rank() ? own : exchange.input(r) + offset);
  }
  exchange.reduce(sources, places, count);
}

// From this size on a message leaves the caches anyway.
constexpr std::size_t streamed_bytes = std::size_t{8} << 20;

// Reading this many bytes from the others' slots costs less than a second rendezvous.
constexpr std::size_t small_bytes = 65536;

// Every member adds everything. It reads its own part from its slot, too, because that copy stays
// unchanged.
void all_reduce_small(Exchange& exchange, std::byte* data, std::int64_t n) {
  std::byte* const slot = exchange.rendezvous()->slot();
  copy_bytes(slot, data, bytes_of(exchange, n));
  exchange.arrive(nullptr, nullptr);
  void* const place[] = {data};
  reduce_to(exchange, place, slot, 0, n);
  exchange.rendezvous()->finish();
}

}  // namespace

// Works in chunks that are split over the members as the full tensor is. A rendezvous shows two
// things at once: each member's elements of a chunk, and its result of its own segment of the chunk
// before.
void all_reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const int size = exchange.size(), self = exchange.rank();
  const std::int64_t own = segment_of(n, size, self).size();
  exchange.count_sent(bytes_of(exchange, n - own) +
                      bytes_of(exchange, own) * static_cast<std::size_t>(size - 1));
  if (bytes_of(exchange, n) * static_cast<std::size_t>(size - 1) <= small_bytes) {
    return all_reduce_small(exchange, data, n);
  }

  // A slot holds results of a segment, then a segment for each member.
  const std::int64_t piece = fitting(exchange, static_cast<std::size_t>(size) + 1);
  const std::int64_t longest = piece * size, chunks = (n + longest - 1) / longest;
  struct Chunk {
    std::int64_t begin, size;
  };
  const auto chunk = [&](std::int64_t k) {  // all chunks have nearly one size
    return Chunk{n * k / chunks, n * (k + 1) / chunks - n * k / chunks};
  };
  const auto at = [&](std::int64_t k, int member) {
    return data +
           bytes_of(exchange, chunk(k).begin + segment_of(chunk(k).size, size, member).begin);
  };
  const auto count = [&](std::int64_t k, int member) {
    return segment_of(chunk(k).size, size, member).size();
  };
  const auto place_in_slot = [&](int member) { return bytes_of(exchange, piece * (member + 1)); };
  const auto stage = [&](std::int64_t k, std::byte* slot) {
    for_each_peer(exchange, [&](int peer) {
      copy_bytes(slot + place_in_slot(peer), at(k, peer), bytes_of(exchange, count(k, peer)));
    });
  };

  const bool large = bytes_of(exchange, n) >= streamed_bytes;
  stage(0, exchange.rendezvous()->slot());
  for (std::int64_t k = 0; k <= chunks; ++k) {
    exchange.arrive(nullptr, nullptr);
    std::byte* const next = exchange.rendezvous()->slot();
    if (k < chunks) {
      void* const places[] = {next, at(k, self)};
      reduce_to(exchange, std::span(places).first(large ? 1 : 2), at(k, self), place_in_slot(self),
                count(k, self));
      if (large) stream(at(k, self), next, bytes_of(exchange, count(k, self)));
    }
    if (k + 1 < chunks) stage(k + 1, next);
    if (k > 0) {
      for_each_peer(exchange, [&](int peer) {
        const auto put = large ? stream : copy_bytes;
        put(at(k - 1, peer), exchange.input(peer), bytes_of(exchange, count(k - 1, peer)));
      });
    }
    exchange.rendezvous()->finish();
  }
}

void reduce_scatter(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t whole = bytes_of(exchange, n);
  exchange.count_sent(whole * static_cast<std::size_t>(exchange.size() - 1));
  const std::int64_t step = fitting(exchange, static_cast<std::size_t>(exchange.size()));
  const auto in_slot = [&](int member) {
    return bytes_of(exchange, step) * static_cast<std::size_t>(member);
  };
  const auto part = [&, in = input](int member, std::int64_t begin) {
    return in + whole * static_cast<std::size_t>(member) + bytes_of(exchange, begin);
  };
  in_rounds(
      exchange, n, step,
      [&](std::int64_t begin, std::int64_t end, std::byte* slot) {
        for_each_peer(exchange, [&](int peer) {
          copy_bytes(slot + in_slot(peer), part(peer, begin), bytes_of(exchange, end - begin));
        });
      },
      [&, out = output](std::int64_t begin, std::int64_t end) {
        void* const place[] = {out + bytes_of(exchange, begin)};
        reduce_to(exchange, place, part(exchange.rank(), begin), in_slot(exchange.rank()),
                  end - begin);
      });
}

void reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const bool root = exchange.rank() == exchange.descriptor().root;
  if (!root) exchange.count_sent(bytes_of(exchange, n));
  in_rounds(
      exchange, n, fitting(exchange, 1),
      [&, at = data](std::int64_t begin, std::int64_t end, std::byte* slot) {
        if (!root)
          copy_bytes(slot, at + bytes_of(exchange, begin), bytes_of(exchange, end - begin));
      },
      [&, at = data](std::int64_t begin, std::int64_t end) {
        if (!root) return;
        void* const place[] = {at + bytes_of(exchange, begin)};
        reduce_to(exchange, place, at + bytes_of(exchange, begin), 0, end - begin);
      });
}

void all_gather(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t whole = bytes_of(exchange, n);
  const auto part = [&, out = output](int member, std::int64_t begin) {
    return out + whole * static_cast<std::size_t>(member) + bytes_of(exchange, begin);
  };
  exchange.count_sent(whole * static_cast<std::size_t>(exchange.size() - 1));
  in_rounds(
      exchange, n, fitting(exchange, 1),
      [&, in = input](std::int64_t begin, std::int64_t end, std::byte* slot) {
        copy_bytes(slot, in + bytes_of(exchange, begin), bytes_of(exchange, end - begin));
      },
      [&](std::int64_t begin, std::int64_t end) {
        for_each_peer(exchange, [&](int peer) {
          copy_bytes(part(peer, begin), exchange.input(peer), bytes_of(exchange, end - begin));
        });
      });
  copy_bytes(part(exchange.rank(), 0), input, whole);
}

void broadcast(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  const int root = exchange.descriptor().root;
  const bool sends = exchange.rank() == root;
  if (sends) {
    exchange.count_sent(bytes_of(exchange, n) * static_cast<std::size_t>(exchange.size() - 1));
  }
  in_rounds(
      exchange, n, fitting(exchange, 1),
      [&, at = data](std::int64_t begin, std::int64_t end, std::byte* slot) {
        if (sends)
          copy_bytes(slot, at + bytes_of(exchange, begin), bytes_of(exchange, end - begin));
      },
      [&, at = data](std::int64_t begin, std::int64_t end) {
        if (sends) return;
        copy_bytes(at + bytes_of(exchange, begin), exchange.input(root),
                   bytes_of(exchange, end - begin));
      });
}

void gather(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t whole = bytes_of(exchange, n);
  const int root = exchange.descriptor().root;
  const bool receives = exchange.rank() == root;
  const auto part = [&, out = output](int member) {
    return out + whole * static_cast<std::size_t>(member);
  };
  if (!receives) exchange.count_sent(whole);
  in_rounds(
      exchange, n, fitting(exchange, 1),
      [&, in = input](std::int64_t begin, std::int64_t end, std::byte* slot) {
        if (receives) return;
        copy_bytes(slot, in + bytes_of(exchange, begin), bytes_of(exchange, end - begin));
      },
      [&](std::int64_t begin, std::int64_t end) {
        if (!receives) return;
        for_each_peer(exchange, [&](int peer) {
          copy_bytes(part(peer) + bytes_of(exchange, begin), exchange.input(peer),
                     bytes_of(exchange, end - begin));
        });
      });
  if (receives) copy_bytes(part(root), input, whole);
}

void scatter(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t whole = bytes_of(exchange, n);
  const int root = exchange.descriptor().root;
  const bool sends = exchange.rank() == root;
  const std::int64_t step = fitting(exchange, static_cast<std::size_t>(exchange.size()));
  const auto in_slot = [&](int member) {
    return bytes_of(exchange, step) * static_cast<std::size_t>(member);
  };
  const auto part = [&, in = input](int member) {
    return in + whole * static_cast<std::size_t>(member);
  };
  if (sends) exchange.count_sent(whole * static_cast<std::size_t>(exchange.size() - 1));
  in_rounds(
      exchange, n, step,
      [&](std::int64_t begin, std::int64_t end, std::byte* slot) {
        if (!sends) return;
        for_each_peer(exchange, [&](int peer) {
          copy_bytes(slot + in_slot(peer), part(peer) + bytes_of(exchange, begin),
                     bytes_of(exchange, end - begin));
        });
      },
      [&, out = output](std::int64_t begin, std::int64_t end) {
        if (sends) return;
        copy_bytes(out + bytes_of(exchange, begin), exchange.input(root) + in_slot(exchange.rank()),
                   bytes_of(exchange, end - begin));
      });
  if (sends) copy_bytes(output, part(root), whole);
}

void all_to_all(Exchange& exchange, const Buffers& buffers) {
  const auto [input, output, n, staging] = buffers;
  const std::size_t whole = bytes_of(exchange, n);
  const int self = exchange.rank();
  const std::int64_t step = fitting(exchange, static_cast<std::size_t>(exchange.size()));
  const auto in_slot = [&](int member) {
    return bytes_of(exchange, step) * static_cast<std::size_t>(member);
  };
  const auto offset = [&](int member, std::int64_t begin) {
    return whole * static_cast<std::size_t>(member) + bytes_of(exchange, begin);
  };
  exchange.count_sent(whole * static_cast<std::size_t>(exchange.size() - 1));
  in_rounds(
      exchange, n, step,
      [&, in = input](std::int64_t begin, std::int64_t end, std::byte* slot) {
        for_each_peer(exchange, [&](int peer) {
          copy_bytes(slot + in_slot(peer), in + offset(peer, begin),
                     bytes_of(exchange, end - begin));
        });
      },
      [&, out = output](std::int64_t begin, std::int64_t end) {
        for_each_peer(exchange, [&](int peer) {
          copy_bytes(out + offset(peer, begin), exchange.input(peer) + in_slot(self),
                     bytes_of(exchange, end - begin));
        });
      });
  copy_bytes(output + offset(self, 0), input + offset(self, 0), whole);
}

// The rounds are as many as the largest part needs, of which all members know the size.
void all_to_all_v(Exchange& exchange, const Buffers& buffers) {
  const CountsTable& table = exchange.counts();
  const int self = exchange.rank();
  const std::int64_t step = fitting(exchange, static_cast<std::size_t>(exchange.size()));
  const auto in_slot = [&](int member) {
    return bytes_of(exchange, step) * static_cast<std::size_t>(member);
  };
  const auto from = [&](int to) {
    return buffers.input + bytes_of(exchange, table.input_begin(self, to));
  };
  const auto to = [&](int sender) {
    return buffers.output + bytes_of(exchange, table.output_begin(self, sender));
  };
  // The bytes of [begin, end) of a part of `count` elements.
  const auto part = [&](std::int64_t count, std::int64_t begin, std::int64_t end) {
    return bytes_of(exchange, std::clamp<std::int64_t>(count - begin, 0, end - begin));
  };
  exchange.count_sent(bytes_of(exchange, table.input(self) - table.sent(self, self)));
  in_rounds(
      exchange, table.most(), step,
      [&](std::int64_t begin, std::int64_t end, std::byte* slot) {
        for_each_peer(exchange, [&](int peer) {
          copy_bytes(slot + in_slot(peer), from(peer) + bytes_of(exchange, begin),
                     part(table.sent(self, peer), begin, end));
        });
      },
      [&](std::int64_t begin, std::int64_t end) {
        for_each_peer(exchange, [&](int peer) {
          copy_bytes(to(peer) + bytes_of(exchange, begin), exchange.input(peer) + in_slot(self),
                     part(table.sent(peer, self), begin, end));
        });
      });
  copy_bytes(to(self), from(self), bytes_of(exchange, table.sent(self, self)));
}

void barrier(Exchange& exchange, const Buffers&) {
  exchange.arrive_without_buffers();
}

}  // namespace trident::slots
