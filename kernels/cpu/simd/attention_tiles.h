// The common parts of blocked causal attention, forward and backward: packed rows, and the mask,
// which gives the keys that a query sees. Letters: D elements of a query or key head, E of a value
// head. D' and E' are these numbers rounded up to full vectors; the padding holds zeros. Queries
// and keys are counted from the task's first ones.
#pragma once

#include "kernels/cpu/simd/dropout.h"
#include "kernels/cpu/simd/product.h"

namespace trident::cpu::simd::TRIDENT_ISA {

inline constexpr std::int64_t block = attention_block;

TRIDENT_INLINE std::int64_t least(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
TRIDENT_INLINE std::int64_t most(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}
TRIDENT_INLINE std::int64_t padded(std::int64_t n) {
  return (n + W - 1) / W * W;
}

// Hands out consecutive parts of the scratch memory.
struct Scratch {
  float* next;
  float* take(std::int64_t floats) {
    float* part = next;
    next += (floats + 15) / 16 * 16;
    return part;
  }
};

static inline void clear(float* x, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) { store(x + i, F{}, lanes); });
}

// to[count][D'] = factor · from[count][D], with zeros beyond D. Rows lie far apart, so the hardware
// does not prefetch them.
template <class T>
static void pack_rows(Rows<T> from, std::int64_t count, std::int64_t d, float factor, float* to) {
  const std::int64_t width = padded(d);
  for (std::int64_t t = 0; t < count; ++t) {
    const T* const row = from.at(t);
    const T* const ahead = from.at(least(t + 8, count - 1));
    for (std::int64_t i = 0; i < d; i += 64 / static_cast<int>(sizeof(T))) {
      __builtin_prefetch(ahead + i);
    }
    each(d, [=](std::int64_t i, auto lanes) {
      store(to + t * width + i, load(row + i, lanes) * splat(factor));
    });
  }
}

// to[D][block] = transpose of from[count][D'], with zeros beyond count.
static inline void transpose(const float* from, std::int64_t count, std::int64_t d, float* to) {
  const std::int64_t width = padded(d), fours = count / 4 * 4;
  if (count < block) clear(to, d * block);
  std::int64_t i = 0;
  for (; i + 4 <= d; i += 4) {
    for (std::int64_t t = 0; t < fours; t += 4) {
      const float* const p = from + t * width + i;
      __m128 a = _mm_loadu_ps(p), b = _mm_loadu_ps(p + width), c = _mm_loadu_ps(p + 2 * width),
             e = _mm_loadu_ps(p + 3 * width);
      _MM_TRANSPOSE4_PS(a, b, c, e);
      float* const q = to + i * block + t;
      _mm_storeu_ps(q, a);
      _mm_storeu_ps(q + block, b);
      _mm_storeu_ps(q + 2 * block, c);
      _mm_storeu_ps(q + 3 * block, e);
    }
    for (std::int64_t t = fours; t < count; ++t) {
      for (std::int64_t j = i; j < i + 4; ++j) to[j * block + t] = from[t * width + j];
    }
  }
  for (; i < d; ++i) {
    for (std::int64_t t = 0; t < count; ++t) to[i * block + t] = from[t * width + i];
  }
}

template <class T>
static void unpack_rows(const float* from, std::int64_t count, std::int64_t d, float factor,
                        Rows<T> to) {
  const std::int64_t width = padded(d);
  for (std::int64_t t = 0; t < count; ++t) {
    T* const row = to.at(t);
    each(d, [=](std::int64_t i, auto lanes) {
      store(row + i, load(from + t * width + i) * splat(factor), lanes);
    });
  }
}

// Calls body(begin, end) for the rows of a block: once off the diagonal, and in strips on it. A
// strip skips most of the keys that the causal mask hides from it.
template <class Body>
TRIDENT_INLINE void in_strips(bool diagonal, std::int64_t rows, Body body) {
  constexpr std::int64_t strip = 16;
  if (!diagonal) {
    body(std::int64_t{0}, rows);
    return;
  }
  for (std::int64_t begin = 0; begin < rows; begin += strip)
    body(begin, least(begin + strip, rows));
}

// The keys that a query sees are first_key … end_key - 1, none if end_key <= first_key. Neither
// bound decreases from a query to the next one.
template <class T>
TRIDENT_INLINE std::int64_t first_key(const AttentionTask<T>& task, std::int64_t query) {
  std::int64_t first = 0;
  if (task.window > 0) first = most(first, query + task.offset() - task.window + 1);
  if (task.document_begins) first = most(first, task.document_begins[query] - task.key_begin);
  return first;
}
template <class T>
TRIDENT_INLINE std::int64_t end_key(const AttentionTask<T>& task, std::int64_t query) {
  return most(0, least(query + task.offset() + 1, task.keys));
}

// Rows are full vectors, so the lanes beyond the requested elements may be read and written.
template <class Lanes>
TRIDENT_INLINE Lanes whole(Lanes lanes) {
  return lanes;
}
TRIDENT_INLINE All whole(Some) {
  return {};
}

// Replaces a row of scores by exponentials, 0 from n up to `width`, and returns their sum. The
// order of additions is the same for all rows.
TRIDENT_INLINE float exponentials(float* row, std::int64_t n, std::int64_t width, float shift) {
  F total{};
  const F m = splat(shift);
  each_pack<4>(n, [&](std::int64_t j, auto lanes) {
    const auto e = only(exp(load(row + j, whole(lanes)) - m), lanes);
    store(row + j, e, whole(lanes));
    total += sum_parts(e);
  });
  for (std::int64_t i = padded(n); i < width; i += W) store(row + i, F{});
  return sum_lanes(total);
}

// A block of `rows` queries from q0 on and one of keys from k0 on.
struct Tile {
  std::int64_t head, q0, k0, rows;
  bool diagonal;  // the first of the queries may not see the last of the keys
  bool edge;      // the last of the queries does not see the first of the keys
};

// The number of keys of a tile that its queries before `end` see, without those at its beginning
// that a window or document hides; at most `count`.
template <class T>
TRIDENT_INLINE std::int64_t seen_before(const AttentionTask<T>& task, const Tile& at,
                                        std::int64_t end, std::int64_t count) {
  return most(0, least(count, end_key(task, at.q0 + end - 1) - at.k0));
}

// The dropout factors of the first `seen` scores of a query's row.
template <class T>
TRIDENT_INLINE void row_factors(const AttentionTask<T>& task, const Tile& at, std::int64_t row,
                                std::int64_t seen, float* factors) {
  const std::int64_t query = task.query_begin + at.q0 + row, key = task.key_begin + at.k0;
  const std::int64_t p = task.dropout_positions, head = task.first_head + at.head;
  dropout_factors(task.dropout, task.sample,
                  static_cast<std::uint64_t>((head * p + query) * p + key), seen, factors);
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
