// Blocked causal attention; all sums are fp32. Forward takes `block` queries by `wide_block` keys
// at a time, backward `block` by `block`. D' is the head dimension rounded up to full vectors; the
// padding holds zeros.
#include "kernels/cpu/simd/dropout.h"
#include "kernels/cpu/simd/leaves.h"
#include "kernels/cpu/simd/product.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

constexpr std::int64_t block = 64;
// The scores and values of a block of queries stay in the level 2 cache. The costs of a row's
// maximum, sum and correction are shared by this many keys.
constexpr std::int64_t wide_block = 4 * block;
constexpr std::int64_t score_row = wide_block + 16;  // not a power of two: rows share no cache sets

TRIDENT_INLINE std::int64_t least(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
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

void clear(float* x, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) { store(x + i, F{}, lanes); });
}

// to[count][D'] = factor · from[count][D], with zeros beyond D. Rows lie far apart, so the hardware
// does not prefetch them.
template <class T>
void pack_rows(const T* from, std::int64_t row, std::int64_t count, std::int64_t d, float factor,
               float* to) {
  const std::int64_t width = padded(d);
  for (std::int64_t t = 0; t < count; ++t) {
    const T* const ahead = from + least(t + 8, count - 1) * row;
    for (std::int64_t i = 0; i < d; i += 64 / static_cast<int>(sizeof(T))) {
      __builtin_prefetch(ahead + i);
    }
    each(d, [=](std::int64_t i, auto lanes) {
      store(to + t * width + i, load(from + t * row + i, lanes) * splat(factor));
    });
  }
}

// to[D][block] = transpose of from[count][D'], with zeros beyond count.
void transpose(const float* from, std::int64_t count, std::int64_t d, float* to) {
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
void unpack_rows(const float* from, std::int64_t count, std::int64_t d, float factor, T* to,
                 std::int64_t row) {
  const std::int64_t width = padded(d);
  for (std::int64_t t = 0; t < count; ++t) {
    each(d, [=](std::int64_t i, auto lanes) {
      store(to + t * row + i, load(from + t * width + i) * splat(factor), lanes);
    });
  }
}

float inverse_root(std::int64_t d) {
  return 1.0f / __builtin_sqrtf(static_cast<float>(d));
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

// The number of keys of the block at k0 that the query may see.
TRIDENT_INLINE std::int64_t visible(std::int64_t query, std::int64_t k0, std::int64_t keys) {
  return least(keys, query - k0 + 1);
}

std::uint64_t dropout_element(std::int64_t head, std::int64_t s, std::int64_t query,
                              std::int64_t key) {
  return static_cast<std::uint64_t>((head * s + query) * s + key);
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

// Hides the scores of a row from `seen` up to n: they count as minus infinity.
TRIDENT_INLINE void hide(float* row, std::int64_t seen, std::int64_t n) {
  const std::int64_t begin = seen / W * W;
  for (std::int64_t i = begin; i < n; i += W) {
    const F rest = splat(-__builtin_inff());
    store(row + i, i == begin ? first_n(load(row + i), rest, seen - begin) : rest);
  }
}

// Merges n scores in each of `rows` rows into the running maxima, totals and outputs. The rows then
// hold the exponentials relative to the new maxima. A row is a chain of dependent steps, so the
// function handles many rows at once where it can.
TRIDENT_INLINE void online_softmax(float* scores, std::int64_t rows, std::int64_t n, bool first,
                                   float* largest, float* totals, float* out, std::int64_t width) {
  float shrinks[block];
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* const row = scores + r * score_row;
    F best = load(row);
    for (std::int64_t i = W; i < n; i += W) best = max(best, load(row + i));
    shrinks[r] = max_lanes(best);
  }
  each(rows, [&](std::int64_t r, auto lanes) {
    const F found = load(shrinks + r, lanes);
    const F before = first ? found : load(largest + r, lanes);
    const F top = max(before, found);
    store(largest + r, top, lanes);
    store(shrinks + r, exp(before - top), lanes);
  });
  for (std::int64_t r = 0; r < rows; ++r) {
    const float sum = exponentials(scores + r * score_row, n, n, largest[r]);
    totals[r] = first ? sum : totals[r] * shrinks[r] + sum;
  }
  if (first) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    const F shrink = splat(shrinks[r]);
    for (std::int64_t i = 0; i < width; i += W) {
      store(out + r * width + i, load(out + r * width + i) * shrink);
    }
  }
}

// Turns a row of scores into probabilities (with dropout if factors are given), and the gradient of
// the probabilities into the gradient of the scores.
TRIDENT_INLINE void softmax_backward(float* p, float* grad, std::int64_t n, std::int64_t columns,
                                     float log_sum, float delta, const float* factors) {
  exponentials(p, n, columns, log_sum);
  const F shift = splat(delta);
  for (std::int64_t i = 0; i < columns; i += W) {
    const F a = load(p + i);
    if (factors) {
      const F f = load(factors + i);
      store(grad + i, a * (load(grad + i) * f - shift));
      store(p + i, a * f);
    } else {
      store(grad + i, a * (load(grad + i) - shift));
    }
  }
}

// A block of queries and a block of keys: the head, the first query q0 and key k0, and the number
// of queries. `diagonal` is true if the first of the queries may not see all of the keys.
struct Tile {
  std::int64_t head, q0, k0, rows;
  bool diagonal;
};

// The dropout factors of the `seen` scores of a query's row.
template <class T>
TRIDENT_INLINE void row_factors(const AttentionTask<T>& task, const Tile& at, std::int64_t row,
                                std::int64_t seen, float* factors) {
  dropout_factors(task.dropout, task.sample,
                  dropout_element(task.first_head + at.head, task.sequence, at.q0 + row, at.k0),
                  seen, factors);
}

struct ForwardScratch {
  ForwardScratch(Scratch from, std::int64_t s, std::int64_t d)
      : keys(from.take((s + block - 1) / block * d * block)),
        values(from.take(s * padded(d))),
        queries(from.take(block * padded(d))),
        scores(from.take(block * score_row)),
        out(from.take(block * padded(d))),
        largest(from.take(block)),
        totals(from.take(block)),
        factors(from.take(wide_block)) {}

  float* keys;  // one transposed [D][block] for each block of keys
  float *values, *queries, *scores, *out, *largest, *totals, *factors;
};

// Computes the exponentials of queries [begin, end) of a tile, with dropout if it is set. The last
// of these queries sees `last_sees` keys.
template <class T>
TRIDENT_INLINE void forward_scores(const AttentionTask<T>& task, const ForwardScratch& own,
                                   const Tile& at, std::int64_t begin, std::int64_t end,
                                   std::int64_t last_sees) {
  const std::int64_t d = task.head_dim, width = padded(d), n = padded(last_sees);
  for (std::int64_t k = 0; k < n; k += block) {
    product({own.queries + begin * width, width, 1}, own.keys + (at.k0 + k) * d, block,
            own.scores + begin * score_row + k, score_row, end - begin, least(block, n - k), d,
            false);
  }
  if (at.diagonal) {
    for (std::int64_t r = begin; r < end; ++r) {
      hide(own.scores + r * score_row, visible(at.q0 + r, at.k0, wide_block), n);
    }
  }
  online_softmax(own.scores + begin * score_row, end - begin, n, at.k0 == 0, own.largest + begin,
                 own.totals + begin, own.out + begin * width, width);
  if (task.dropout.threshold == 0) return;
  for (std::int64_t r = begin; r < end; ++r) {
    float* const row = own.scores + r * score_row;
    float* const factors = own.factors;
    const std::int64_t seen = visible(at.q0 + r, at.k0, wide_block);
    row_factors(task, at, r, seen, factors);
    each(seen, [=](std::int64_t i, auto lanes) {
      store(row + i, only(load(row + i) * load(factors + i), lanes));
    });
  }
}

// Computes the output of a head's block of queries at q0.
template <class T>
TRIDENT_INLINE void forward_queries(const AttentionTask<T>& task, const ForwardScratch& own,
                                    std::int64_t head, std::int64_t q0) {
  const std::int64_t s = task.sequence, d = task.head_dim, width = padded(d);
  const std::int64_t rows = least(block, s - q0);
  pack_rows(task.q + q0 * task.row + head * d, task.row, rows, d, inverse_root(d), own.queries);
  for (std::int64_t k0 = 0; k0 < q0 + rows; k0 += wide_block) {
    const bool diagonal = k0 + wide_block > q0;
    const Tile at{head, q0, k0, rows, diagonal};
    // The number of keys of this block that a strip of queries ending before `end` sees.
    const auto seen_by = [&](std::int64_t end) {
      return least(wide_block, q0 - k0 + (diagonal ? end : rows));
    };
    in_strips(diagonal, rows, [&](std::int64_t begin, std::int64_t end) {
      forward_scores(task, own, at, begin, end, seen_by(end));
    });
    in_strips(diagonal, rows, [&](std::int64_t begin, std::int64_t end) {
      product({own.scores + begin * score_row, score_row, 1}, own.values + k0 * width, width,
              own.out + begin * width, width, end - begin, width, seen_by(end), k0 > 0);
    });
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    unpack_rows(own.out + r * width, 1, d, 1.0f / own.totals[r],
                task.out + (q0 + r) * task.out_row + head * d, task.out_row);
    task.log_sum_exp[head * s + q0 + r] = own.largest[r] + __builtin_logf(own.totals[r]);
  }
}

template <class T>
void attention_forward(const AttentionTask<T>& task, float* memory) {
  const std::int64_t s = task.sequence, d = task.head_dim;
  const ForwardScratch own({memory}, s, d);
  for (std::int64_t k0 = 0; k0 < s; k0 += block) {
    const std::int64_t count = least(block, s - k0);
    pack_rows(task.k + k0 * task.row, task.row, count, d, 1.0f, own.out);
    transpose(own.out, count, d, own.keys + k0 * d);
  }
  pack_rows(task.v, task.row, s, d, 1.0f, own.values);

  for (std::int64_t head = 0; head < task.heads; ++head) {
    for (std::int64_t q0 = 0; q0 < s; q0 += block) forward_queries(task, own, head, q0);
  }
}

struct BackwardScratch {
  BackwardScratch(Scratch from, std::int64_t s, std::int64_t d)
      : key_grads(from.take(s * padded(d))),
        value_grads(from.take(s * padded(d))),
        queries(from.take(s * padded(d))),
        out_grads(from.take(s * padded(d))),
        query_grads(from.take(s * padded(d))),
        keys(from.take(block * padded(d))),
        keys_transposed(from.take(block * padded(d))),
        values(from.take(block * padded(d))),
        values_transposed(from.take(block * padded(d))),
        probabilities(from.take(block * block)),
        score_grads(from.take(block * block)),
        factors(from.take(block)),
        deltas(from.take(s)) {}

  float *key_grads, *value_grads;                              // sums over heads
  float *queries, *out_grads, *query_grads;                    // of one head
  float *keys, *keys_transposed, *values, *values_transposed;  // of one block of keys
  float *probabilities, *score_grads;                          // of one tile
  float *factors, *deltas;
};

// Packs a head's queries and output gradients, and computes delta = out · grad_out for each query.
template <class T>
TRIDENT_INLINE void pack_head(const AttentionTask<T>& task, const BackwardScratch& own,
                              std::int64_t head) {
  const std::int64_t s = task.sequence, d = task.head_dim, width = padded(d);
  pack_rows(task.q + head * d, task.row, s, d, inverse_root(d), own.queries);
  pack_rows(task.grad_out + head * d, task.out_row, s, d, 1.0f, own.out_grads);
  clear(own.query_grads, s * width);
  for (std::int64_t t = 0; t < s; ++t) {
    F sum{};
    each(d, [&](std::int64_t i, auto lanes) {
      sum = fma(load(task.out + t * task.out_row + head * d + i, lanes),
                load(own.out_grads + t * width + i), sum);
    });
    own.deltas[t] = sum_lanes(sum);
  }
}

// Computes the probabilities of a tile, with dropout if it is set, and the gradients of its scores.
template <class T>
TRIDENT_INLINE void backward_scores(const AttentionTask<T>& task, const BackwardScratch& own,
                                    const Tile& at, std::int64_t count) {
  const std::int64_t d = task.head_dim, width = padded(d);
  const bool dropping = task.dropout.threshold != 0;
  const float* const log_sums = task.log_sum_exp + at.head * task.sequence;
  in_strips(at.diagonal, at.rows, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t n = padded(at.diagonal ? end : count);
    product({own.queries + (at.q0 + begin) * width, width, 1}, own.keys_transposed, block,
            own.probabilities + begin * block, block, end - begin, n, d, false);
    product({own.out_grads + (at.q0 + begin) * width, width, 1}, own.values_transposed, block,
            own.score_grads + begin * block, block, end - begin, n, d, false);
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t seen = visible(at.q0 + r, at.k0, count);
      if (dropping) {
        row_factors(task, at, r, seen, own.factors);
        for (std::int64_t i = seen; i < n; ++i) own.factors[i] = 0;
      }
      softmax_backward(own.probabilities + r * block, own.score_grads + r * block, seen, n,
                       log_sums[at.q0 + r], own.deltas[at.q0 + r],
                       dropping ? own.factors : nullptr);
    }
  });
}

// Adds the contribution of a tile to the gradients of its values, keys and queries.
TRIDENT_INLINE void add_gradients(const BackwardScratch& own, const Tile& at, std::int64_t count,
                                  std::int64_t width) {
  in_strips(at.diagonal, count, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = at.diagonal ? begin : 0;  // earlier queries see none of these keys
    product({own.probabilities + first * block + begin, 1, block},
            own.out_grads + (at.q0 + first) * width, width,
            own.value_grads + (at.k0 + begin) * width, width, end - begin, width, at.rows - first,
            true);
    product({own.score_grads + first * block + begin, 1, block},
            own.queries + (at.q0 + first) * width, width, own.key_grads + (at.k0 + begin) * width,
            width, end - begin, width, at.rows - first, true);
  });
  in_strips(at.diagonal, at.rows, [&](std::int64_t begin, std::int64_t end) {
    product({own.score_grads + begin * block, block, 1}, own.keys, width,
            own.query_grads + (at.q0 + begin) * width, width, end - begin, width,
            at.diagonal ? end : count, true);
  });
}

template <class T>
void attention_backward(const AttentionTask<T>& task, float* memory) {
  const std::int64_t s = task.sequence, d = task.head_dim, width = padded(d);
  const BackwardScratch own({memory}, s, d);
  clear(own.key_grads, s * width);
  clear(own.value_grads, s * width);
  for (std::int64_t head = 0; head < task.heads; ++head) {
    pack_head(task, own, head);
    for (std::int64_t k0 = 0; k0 < s; k0 += block) {
      const std::int64_t count = least(block, s - k0);
      pack_rows(task.k + k0 * task.row, task.row, count, d, 1.0f, own.keys);
      transpose(own.keys, count, d, own.keys_transposed);
      pack_rows(task.v + k0 * task.row, task.row, count, d, 1.0f, own.values);
      transpose(own.values, count, d, own.values_transposed);
      for (std::int64_t q0 = k0; q0 < s; q0 += block) {
        const Tile at{head, q0, k0, least(block, s - q0), k0 == q0};
        backward_scores(task, own, at, count);
        add_gradients(own, at, count, width);
      }
    }
    unpack_rows(own.query_grads, s, d, inverse_root(d), task.grad_q + head * d, task.row);
  }
  unpack_rows(own.key_grads, s, d, 1.0f, task.grad_k, task.row);
  unpack_rows(own.value_grads, s, d, 1.0f, task.grad_v, task.row);
}

std::int64_t attention_scratch(std::int64_t sequence, std::int64_t head_dim, bool backward) {
  const std::int64_t rows = (sequence + block - 1) / block * block, width = padded(head_dim) + 16;
  return backward ? 5 * rows * width + 4 * block * width + 2 * block * block + 2 * rows + 256
                  : 2 * rows * width + 2 * block * width + block * score_row + 2 * block +
                        wide_block + 256;
}

template <class T>
void attend(const T* q, const T* keys, const T* values, std::int64_t row, std::int64_t count,
            std::int64_t head_dim, float* scores, T* out) {
  const float scale = inverse_root(head_dim);
  float largest = -__builtin_inff();
  for (std::int64_t t = 0; t < count; ++t) {
    const T* const key = keys + t * row;
    __builtin_prefetch(key + 4 * row);
    F sum{};
    each(head_dim, [&](std::int64_t i, auto lanes) {
      sum = fma(load(q + i, lanes), load(key + i, lanes), sum);
    });
    scores[t] = sum_lanes(sum) * scale;
    if (!(scores[t] <= largest)) largest = scores[t];  // a NaN propagates
  }
  F sums{};
  each(count, [&](std::int64_t t, auto lanes) {
    const F e = only(exp(load(scores + t, lanes) - splat(largest)), lanes);
    store(scores + t, e, lanes);
    sums = sums + e;
  });
  const F factor = splat(1.0f / sum_lanes(sums));
  // Handles a few vectors of the result at a time, so that their sums stay in registers.
  constexpr std::int64_t wide = 8 * W;
  for (std::int64_t begin = 0; begin < head_dim; begin += wide) {
    const std::int64_t columns = least(wide, head_dim - begin);
    float total[wide] = {};
    for (std::int64_t t = 0; t < count; ++t) {
      const F weight = splat(scores[t]);
      const T* const value = values + t * row + begin;
      each(columns, [&](std::int64_t i, auto lanes) {
        store(total + i, fma(weight, load(value + i, lanes), load(total + i, lanes)), lanes);
      });
    }
    each(columns, [&](std::int64_t i, auto lanes) {
      store(out + begin + i, load(total + i, lanes) * factor, lanes);
    });
  }
}

template <class T>
void set(Leaves<T>& leaves) {
  leaves.attention_forward = attention_forward<T>;
  leaves.attention_backward = attention_backward<T>;
  leaves.attend = attend<T>;
}

}  // namespace

void set_attention(Table& table) {
  set(table.f32);
  set(table.bf16);
  set(table.f16);
  table.attention_scratch = attention_scratch;
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
