// The softmax of blocked attention, forward and backward, whatever computes the products: masks,
// the running maxima and sums of Dao 2022, dropout, and a block's output. All sums are fp32.
#pragma once

#include "kernels/cpu/simd/attention_tiles.h"

namespace trident::cpu::simd::TRIDENT_ISA {

// The scores and values of a block of queries stay in the level 2 cache. The costs of a row's
// maximum, sum and correction are shared by this many keys.
constexpr std::int64_t wide_block = 4 * block;
constexpr std::int64_t score_row = wide_block + 16;  // not a power of two: rows share no cache sets

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

// The working memory of a block of queries during its pass over the keys.
struct SoftmaxScratch {
  void take(Scratch& from, const AttentionSizes& sizes) {
    scores = from.take(block * score_row);
    out = from.take(block * padded(sizes.value_dim));
    largest = from.take(block);
    totals = from.take(block);
    factors = from.take(wide_block);
  }

  float *scores, *out, *largest, *totals, *factors;
};

// Turns the first n scores of queries [begin, end) of a tile into exponentials, with dropout if it
// is set, and merges them into the running state. `first`: no tile of these queries came before.
template <class T>
TRIDENT_INLINE void merge_scores(const AttentionTask<T>& task, const SoftmaxScratch& own,
                                 const Tile& at, std::int64_t begin, std::int64_t end,
                                 std::int64_t n, bool first) {
  const std::int64_t out_width = padded(task.value_dim);
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
TRIDENT_INLINE void begin_queries(const SoftmaxScratch& own, std::int64_t begin, std::int64_t end,
                                  std::int64_t width) {
  for (std::int64_t r = begin; r < end; ++r) {
    own.largest[r] = least_maximum;
    own.totals[r] = 0;
  }
  clear(own.out + begin * width, (end - begin) * width);
}

// Writes the output and log-sum-exp of a block of queries, with the head's sink if there is one.
template <class T>
TRIDENT_INLINE void finish_queries(const AttentionTask<T>& task, const SoftmaxScratch& own,
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

// ---- backward ----

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

// The gradient of the head's sink: its probability, exp(sink - log-sum-exp), weighs no value, so
// the gradient of its score is that probability times minus delta.
template <class T>
TRIDENT_INLINE float sink_gradient(const AttentionTask<T>& task, const float* deltas,
                                   std::int64_t head) {
  const float sink = sum_lanes(load(task.sinks + head, Some{1}));
  float sum = 0;
  for (std::int64_t t = 0; t < task.queries; ++t) {
    sum -= __builtin_expf(sink - task.log_sum_exp[head * task.queries + t]) * deltas[t];
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

// Turns the scores of queries [begin, end) of a tile into probabilities, with dropout if it is set,
// and the gradients of the probabilities into those of the scores, n columns of a block's rows.
// `count`: the keys of the tile.
template <class T>
TRIDENT_INLINE void score_gradients(const AttentionTask<T>& task, const Tile& at,
                                    std::int64_t begin, std::int64_t end, std::int64_t count,
                                    std::int64_t n, float* probabilities, float* score_grads,
                                    const float* deltas, float* factors) {
  const bool dropping = task.dropout.threshold != 0;
  // Otherwise the strips of queries and those of keys meet on the diagonal.
  const bool ragged = (at.edge || at.diagonal) && !task.plain();
  const float* const log_sums = task.log_sum_exp + at.head * task.queries;
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t seen = seen_before(task, at, r + 1, count);
    if (dropping) {
      row_factors(task, at, r, seen, factors);
      for (std::int64_t i = seen; i < n; ++i) factors[i] = 0;
    }
    softmax_backward(probabilities + r * block, score_grads + r * block, seen, n,
                     log_sums[at.q0 + r], deltas[at.q0 + r], dropping ? factors : nullptr);
    if (!ragged) continue;
    const std::int64_t first = most(0, least(seen, first_key(task, at.q0 + r) - at.k0));
    clear_hidden(probabilities + r * block, first, n);
    clear_hidden(score_grads + r * block, first, n);
  }
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
