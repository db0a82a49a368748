// Blocked causal attention; all sums are fp32. Forward takes `block` queries by `wide_block` keys
// at a time, backward `block` by `block`; both leave out blocks that the mask hides. Letters: D
// elements of a query or key head, E of a value head. D' and E' are these numbers rounded up to
// full vectors; the padding holds zeros. Queries and keys are counted from the task's first ones.
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

void clear(float* x, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) { store(x + i, F{}, lanes); });
}

// to[count][D'] = factor · from[count][D], with zeros beyond D. Rows lie far apart, so the hardware
// does not prefetch them.
template <class T>
void pack_rows(Rows<T> from, std::int64_t count, std::int64_t d, float factor, float* to) {
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
void unpack_rows(const float* from, std::int64_t count, std::int64_t d, float factor, Rows<T> to) {
  const std::int64_t width = padded(d);
  for (std::int64_t t = 0; t < count; ++t) {
    T* const row = to.at(t);
    each(d, [=](std::int64_t i, auto lanes) {
      store(row + i, load(from + t * width + i) * splat(factor), lanes);
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

// Hides the scores of a row from `seen` up to n: they count as minus infinity.
TRIDENT_INLINE void hide(float* row, std::int64_t seen, std::int64_t n) {
  const std::int64_t begin = seen / W * W;
  for (std::int64_t i = begin; i < n; i += W) {
    const F rest = splat(-__builtin_inff());
    store(row + i, i == begin ? first_n(load(row + i), rest, seen - begin) : rest);
  }
}

// Hides the scores of a row before `first`.
TRIDENT_INLINE void hide_before(float* row, std::int64_t first) {
  const F hidden = splat(-__builtin_inff());
  for (std::int64_t i = 0; i < first; i += W) {
    store(row + i, first_n(hidden, load(row + i), least(W, first - i)));
  }
}

// The smallest running maximum of a row: that of a row of hidden scores only.
constexpr float least_maximum = -__FLT_MAX__;

// Merges n scores in each of `rows` rows into the running maxima, totals and outputs. The rows then
// hold the exponentials relative to the new maxima. A row is a chain of dependent steps, so the
// function handles many rows at once where it can. `bare` is true if all scores of a row may be
// hidden.
TRIDENT_INLINE void online_softmax(float* scores, std::int64_t rows, std::int64_t n, bool first,
                                   bool bare, float* largest, float* totals, float* out,
                                   std::int64_t width) {
  float shrinks[block];
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* const row = scores + r * score_row;
    F best = load(row);
    for (std::int64_t i = W; i < n; i += W) best = max(best, load(row + i));
    shrinks[r] = max_lanes(best);
  }
  each(rows, [&](std::int64_t r, auto lanes) {
    F found = load(shrinks + r, lanes);
    if (bare) found = max(splat(least_maximum), found);  // a NaN stays
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

struct ForwardScratch {
  ForwardScratch(Scratch from, const AttentionSizes& sizes)
      : keys(from.take((sizes.keys + block - 1) / block * sizes.head_dim * block)),
        values(from.take(sizes.keys * padded(sizes.value_dim))),
        queries(from.take(block * padded(sizes.head_dim))),
        scores(from.take(block * score_row)),
        out(from.take(block * padded(sizes.value_dim))),
        largest(from.take(block)),
        totals(from.take(block)),
        factors(from.take(wide_block)) {}

  float* keys;  // one transposed [D][block] for each block of keys
  float *values, *queries, *scores, *out, *largest, *totals, *factors;
};

// Computes the exponentials of queries [begin, end) of a tile, with dropout if it is set. The last
// of these queries sees `last_sees` keys. `first`: no tile of these queries came before.
template <class T>
TRIDENT_INLINE void forward_scores(const AttentionTask<T>& task, const ForwardScratch& own,
                                   const Tile& at, std::int64_t begin, std::int64_t end,
                                   std::int64_t last_sees, bool first) {
  const std::int64_t d = task.head_dim, width = padded(d), n = padded(last_sees);
  const std::int64_t out_width = padded(task.value_dim);
  for (std::int64_t k = 0; k < n; k += block) {
    product({own.queries + begin * width, width, 1}, own.keys + (at.k0 + k) * d, block,
            own.scores + begin * score_row + k, score_row, end - begin, least(block, n - k), d,
            false);
  }
  if (at.diagonal) {
    for (std::int64_t r = begin; r < end; ++r) {
      hide(own.scores + r * score_row, seen_before(task, at, r + 1, wide_block), n);
    }
  }
  if (at.edge) {
    for (std::int64_t r = begin; r < end; ++r) {
      hide_before(own.scores + r * score_row, least(n, first_key(task, at.q0 + r) - at.k0));
    }
  }
  online_softmax(own.scores + begin * score_row, end - begin, n, first,
                 at.edge || task.offset() != 0, own.largest + begin, own.totals + begin,
                 own.out + begin * out_width, out_width);
  if (task.dropout.threshold == 0) return;
  for (std::int64_t r = begin; r < end; ++r) {
    float* const row = own.scores + r * score_row;
    float* const factors = own.factors;
    const std::int64_t seen = seen_before(task, at, r + 1, wide_block);
    row_factors(task, at, r, seen, factors);
    each(seen, [=](std::int64_t i, auto lanes) {
      store(row + i, only(load(row + i) * load(factors + i), lanes));
    });
  }
}

// The state of queries [begin, end) of a block that have seen no key.
TRIDENT_INLINE void begin_queries(const ForwardScratch& own, std::int64_t begin, std::int64_t end,
                                  std::int64_t width) {
  for (std::int64_t r = begin; r < end; ++r) {
    own.largest[r] = least_maximum;
    own.totals[r] = 0;
  }
  clear(own.out + begin * width, (end - begin) * width);
}

// Writes the output and log-sum-exp of a block of queries, with the head's sink if there is one.
template <class T>
TRIDENT_INLINE void finish_queries(const AttentionTask<T>& task, const ForwardScratch& own,
                                   std::int64_t head, std::int64_t q0, std::int64_t rows) {
  const std::int64_t e = task.value_dim, width = padded(e);
  for (std::int64_t r = 0; r < rows; ++r) {
    float largest = own.largest[r], total = own.totals[r], kept = 1.0f;
    if (task.sinks) {
      const float sink = sum_lanes(load(task.sinks + head, Some{1}));
      const float top = sink > largest ? sink : largest;
      kept = __builtin_expf(largest - top);
      total = total * kept + __builtin_expf(sink - top);
      largest = top;
    }
    if (total == 0) clear(own.out + r * width, width);  // it saw no key
    unpack_rows(own.out + r * width, 1, e, total == 0 ? 0 : kept / total,
                task.out.from(q0 + r, head * e));
    task.log_sum_exp[head * task.queries + q0 + r] = largest + __builtin_logf(total);
  }
}

// Computes the output of a head's block of queries at q0.
template <class T>
TRIDENT_INLINE void forward_queries(const AttentionTask<T>& task, const ForwardScratch& own,
                                    std::int64_t head, std::int64_t q0) {
  const std::int64_t d = task.head_dim, width = padded(task.value_dim);
  const std::int64_t rows = least(block, task.queries - q0);
  pack_rows(task.q.from(q0, head * d), rows, d, inverse_root(d), own.queries);
  const std::int64_t begin_key = first_key(task, q0) / block * block;
  const std::int64_t end = end_key(task, q0 + rows - 1),
                     last_first = first_key(task, q0 + rows - 1);
  if (begin_key >= end) begin_queries(own, 0, rows, width);
  for (std::int64_t k0 = begin_key; k0 < end; k0 += wide_block) {
    const bool diagonal = k0 + wide_block > least(q0 + task.offset(), task.keys);
    const Tile at{head, q0, k0, rows, diagonal, last_first > k0};
    const auto seen_by = [&](std::int64_t last) {
      return diagonal ? seen_before(task, at, last, wide_block) : wide_block;
    };
    in_strips(diagonal, rows, [&](std::int64_t begin, std::int64_t last) {
      const std::int64_t seen = seen_by(last);
      if (seen > 0) {
        forward_scores(task, own, at, begin, last, seen, k0 == begin_key);
      } else if (k0 == begin_key) {
        begin_queries(own, begin, last, width);
      }
    });
    in_strips(diagonal, rows, [&](std::int64_t begin, std::int64_t last) {
      const std::int64_t seen = seen_by(last);
      if (seen == 0) return;
      product({own.scores + begin * score_row, score_row, 1}, own.values + k0 * width, width,
              own.out + begin * width, width, last - begin, width, seen, k0 > begin_key);
    });
  }
  finish_queries(task, own, head, q0, rows);
}

template <class T>
void attention_forward(const AttentionTask<T>& task, float* memory) {
  const std::int64_t d = task.head_dim;
  const ForwardScratch own({memory}, task);
  for (std::int64_t k0 = 0; k0 < task.keys; k0 += block) {
    const std::int64_t count = least(block, task.keys - k0);
    pack_rows(task.k.from(k0), count, d, 1.0f, own.queries);
    transpose(own.queries, count, d, own.keys + k0 * d);
  }
  pack_rows(task.v, task.keys, task.value_dim, 1.0f, own.values);

  for (std::int64_t head = 0; head < task.heads; ++head) {
    for (std::int64_t q0 = 0; q0 < task.queries; q0 += block) {
      forward_queries(task, own, head, q0);
    }
  }
}

struct BackwardScratch {
  BackwardScratch(Scratch from, const AttentionSizes& sizes)
      : key_grads(from.take(sizes.keys * padded(sizes.head_dim))),
        value_grads(from.take(sizes.keys * padded(sizes.value_dim))),
        queries(from.take(sizes.queries * padded(sizes.head_dim))),
        out_grads(from.take(sizes.queries * padded(sizes.value_dim))),
        query_grads(from.take(sizes.queries * padded(sizes.head_dim))),
        keys(from.take(block * padded(sizes.head_dim))),
        keys_transposed(from.take(block * padded(sizes.head_dim))),
        values(from.take(block * padded(sizes.value_dim))),
        values_transposed(from.take(block * padded(sizes.value_dim))),
        probabilities(from.take(block * block)),
        score_grads(from.take(block * block)),
        factors(from.take(block)),
        deltas(from.take(sizes.queries)) {}

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
  const std::int64_t s = task.queries, d = task.head_dim, e = task.value_dim, width = padded(e);
  pack_rows(task.q.from(0, head * d), s, d, inverse_root(d), own.queries);
  pack_rows(task.grad_out.from(0, head * e), s, e, 1.0f, own.out_grads);
  clear(own.query_grads, s * padded(d));
  for (std::int64_t t = 0; t < s; ++t) {
    F sum{};
    each(e, [&](std::int64_t i, auto lanes) {
      sum =
          fma(load(task.out.at(t) + head * e + i, lanes), load(own.out_grads + t * width + i), sum);
    });
    own.deltas[t] = sum_lanes(sum);
  }
}

// The gradient of the head's sink: its probability, exp(sink - log-sum-exp), weighs no value, so
// the gradient of its score is that probability times minus delta.
template <class T>
float sink_gradient(const AttentionTask<T>& task, const BackwardScratch& own, std::int64_t head) {
  const float sink = sum_lanes(load(task.sinks + head, Some{1}));
  float sum = 0;
  for (std::int64_t t = 0; t < task.queries; ++t) {
    sum -= __builtin_expf(sink - task.log_sum_exp[head * task.queries + t]) * own.deltas[t];
  }
  return sum;
}

// Clears the columns of a row of scores that its query does not see: before `first`, from `end` on.
TRIDENT_INLINE void clear_hidden(float* row, std::int64_t first, std::int64_t end) {
  for (std::int64_t i = 0; i < first; i += W) {
    store(row + i, first_n(F{}, load(row + i), least(W, first - i)));
  }
  clear(row + end, block - end);
}

// Computes the probabilities of a tile, with dropout if it is set, and the gradients of its scores.
template <class T>
TRIDENT_INLINE void backward_scores(const AttentionTask<T>& task, const BackwardScratch& own,
                                    const Tile& at, std::int64_t count) {
  const std::int64_t d = task.head_dim, width = padded(d), out_width = padded(task.value_dim);
  const bool dropping = task.dropout.threshold != 0;
  // Otherwise the strips of queries and those of keys meet on the diagonal.
  const bool ragged = (at.edge || at.diagonal) && !task.plain();
  const float* const log_sums = task.log_sum_exp + at.head * task.queries;
  in_strips(at.diagonal, at.rows, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t n = padded(at.diagonal ? seen_before(task, at, end, count) : count);
    if (n > 0) {
      product({own.queries + (at.q0 + begin) * width, width, 1}, own.keys_transposed, block,
              own.probabilities + begin * block, block, end - begin, n, d, false);
      product({own.out_grads + (at.q0 + begin) * out_width, out_width, 1}, own.values_transposed,
              block, own.score_grads + begin * block, block, end - begin, n, task.value_dim, false);
    }
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t seen = seen_before(task, at, r + 1, count);
      if (dropping) {
        row_factors(task, at, r, seen, own.factors);
        for (std::int64_t i = seen; i < n; ++i) own.factors[i] = 0;
      }
      softmax_backward(own.probabilities + r * block, own.score_grads + r * block, seen, n,
                       log_sums[at.q0 + r], own.deltas[at.q0 + r],
                       dropping ? own.factors : nullptr);
      if (!ragged) continue;
      const std::int64_t first = most(0, least(seen, first_key(task, at.q0 + r) - at.k0));
      clear_hidden(own.probabilities + r * block, first, n);
      clear_hidden(own.score_grads + r * block, first, n);
    }
  });
}

// Adds the contribution of a tile to the gradients of its values, keys and queries.
template <class T>
TRIDENT_INLINE void add_gradients(const AttentionTask<T>& task, const BackwardScratch& own,
                                  const Tile& at, std::int64_t count) {
  const std::int64_t width = padded(task.head_dim), out_width = padded(task.value_dim);
  in_strips(at.diagonal, count, [&](std::int64_t begin, std::int64_t end) {
    // Earlier queries see none of these keys.
    const std::int64_t first =
        at.diagonal ? least(at.rows, most(0, at.k0 + begin - at.q0 - task.offset())) : 0;
    product({own.probabilities + first * block + begin, 1, block},
            own.out_grads + (at.q0 + first) * out_width, out_width,
            own.value_grads + (at.k0 + begin) * out_width, out_width, end - begin, out_width,
            at.rows - first, true);
    product({own.score_grads + first * block + begin, 1, block},
            own.queries + (at.q0 + first) * width, width, own.key_grads + (at.k0 + begin) * width,
            width, end - begin, width, at.rows - first, true);
  });
  in_strips(at.diagonal, at.rows, [&](std::int64_t begin, std::int64_t end) {
    product({own.score_grads + begin * block, block, 1}, own.keys, width,
            own.query_grads + (at.q0 + begin) * width, width, end - begin, width,
            at.diagonal ? seen_before(task, at, end, count) : count, true);
  });
}

// Adds the contributions of a head's queries to the gradients of the block of keys at k0, and of
// these keys to the gradients of the queries.
template <class T>
TRIDENT_INLINE void backward_keys(const AttentionTask<T>& task, const BackwardScratch& own,
                                  std::int64_t head, std::int64_t k0) {
  const std::int64_t count = least(block, task.keys - k0), offset = task.offset();
  const std::int64_t first_query = most(0, k0 - offset) / block * block;
  if (first_query >= task.queries) return;
  pack_rows(task.k.from(k0), count, task.head_dim, 1.0f, own.keys);
  transpose(own.keys, count, task.head_dim, own.keys_transposed);
  pack_rows(task.v.from(k0), count, task.value_dim, 1.0f, own.values);
  transpose(own.values, count, task.value_dim, own.values_transposed);
  for (std::int64_t q0 = first_query; q0 < task.queries; q0 += block) {
    if (first_key(task, q0) >= k0 + count) break;  // nor do later queries see these keys
    const std::int64_t rows = least(block, task.queries - q0);
    const Tile at{head, q0, k0, rows,
                  q0 + offset<k0 + block - 1, first_key(task, q0 + rows - 1)> k0};
    backward_scores(task, own, at, count);
    add_gradients(task, own, at, count);
  }
}

template <class T>
void attention_backward(const AttentionTask<T>& task, float* memory) {
  const std::int64_t s = task.queries, d = task.head_dim, e = task.value_dim;
  const BackwardScratch own({memory}, task);
  clear(own.key_grads, task.keys * padded(d));
  clear(own.value_grads, task.keys * padded(e));
  for (std::int64_t head = 0; head < task.heads; ++head) {
    pack_head(task, own, head);
    if (task.sinks) task.grad_sinks[head] = sink_gradient(task, own, head);
    for (std::int64_t k0 = 0; k0 < task.keys; k0 += block) backward_keys(task, own, head, k0);
    unpack_rows(own.query_grads, s, d, inverse_root(d), task.grad_q.from(0, head * d));
  }
  unpack_rows(own.key_grads, task.keys, d, 1.0f, task.grad_k);
  unpack_rows(own.value_grads, task.keys, e, 1.0f, task.grad_v);
}

std::int64_t attention_scratch(const AttentionSizes& sizes, bool backward) {
  const auto whole_blocks = [](std::int64_t n) { return (n + block - 1) / block * block; };
  const std::int64_t queries = whole_blocks(sizes.queries), keys = whole_blocks(sizes.keys);
  const std::int64_t width = padded(sizes.head_dim) + 16, out_width = padded(sizes.value_dim) + 16;
  return backward
             ? (keys + 2 * queries + 2 * block) * width + (keys + queries + 2 * block) * out_width +
                   2 * block * block + 2 * queries + 256
             : (keys + block) * (width + out_width) + block * score_row + 2 * block + wide_block +
                   256;
}

template <class T>
void attend(const AttendTask<T>& task, float* scores, T* out) {
  const float scale = inverse_root(task.head_dim);
  float largest = task.sink ? sum_lanes(load(task.sink, Some{1})) : -__builtin_inff();
  for (std::int64_t t = 0; t < task.count; ++t) {
    const T* const key = task.keys + t * task.row;
    __builtin_prefetch(key + 4 * task.row);
    F sum{};
    each(task.head_dim, [&](std::int64_t i, auto lanes) {
      sum = fma(load(task.q + i, lanes), load(key + i, lanes), sum);
    });
    scores[t] = sum_lanes(sum) * scale;
    if (!(scores[t] <= largest)) largest = scores[t];  // a NaN propagates
  }
  F sums{};
  each(task.count, [&](std::int64_t t, auto lanes) {
    const F e = only(exp(load(scores + t, lanes) - splat(largest)), lanes);
    store(scores + t, e, lanes);
    sums = sums + e;
  });
  float sum = sum_lanes(sums);
  if (task.sink) sum += __builtin_expf(sum_lanes(load(task.sink, Some{1})) - largest);
  const F factor = splat(1.0f / sum);
  // Handles a few vectors of the result at a time, so that their sums stay in registers.
  constexpr std::int64_t wide = 8 * W;
  for (std::int64_t begin = 0; begin < task.value_dim; begin += wide) {
    const std::int64_t columns = least(wide, task.value_dim - begin);
    float total[wide] = {};
    for (std::int64_t t = 0; t < task.count; ++t) {
      const F weight = splat(scores[t]);
      const T* const value = task.values + t * task.row + begin;
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
