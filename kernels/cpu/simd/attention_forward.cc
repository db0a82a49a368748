// Attention, forward: `block` queries by `wide_block` keys at a time, without the blocks that the
// mask hides. All sums are fp32.
#include "kernels/cpu/simd/attention_tiles.h"
#include "kernels/cpu/simd/leaves.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

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
  pack_rows(task.q.from(q0, head * d), rows, d, task.scale, own.queries);
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
void attention_forward(const AttentionTask<T>& task, std::int64_t begin, std::int64_t end,
                       float* memory) {
  const std::int64_t d = task.head_dim, e = task.value_dim;
  const std::int64_t units = (task.queries + block - 1) / block;
  const ForwardScratch own({memory}, task);
  // A part of one head needs the keys that its queries see.
  std::int64_t first = 0, last = task.keys;
  if (begin / units == (end - 1) / units) {
    first = first_key(task, begin % units * block) / block * block;
    last = end_key(task, least(task.queries, ((end - 1) % units + 1) * block) - 1);
  }
  for (std::int64_t k0 = first; k0 < last; k0 += block) {
    const std::int64_t count = least(block, task.keys - k0);
    pack_rows(task.k.from(k0), count, d, 1.0f, own.queries);
    transpose(own.queries, count, d, own.keys + k0 * d);
  }
  if (first < last) {
    pack_rows(task.v.from(first), last - first, e, 1.0f, own.values + first * padded(e));
  }
  for (std::int64_t unit = begin; unit < end; ++unit) {
    forward_queries(task, own, unit / units, unit % units * block);
  }
}

std::int64_t attention_scratch(const AttentionSizes& sizes) {
  const std::int64_t keys = (sizes.keys + block - 1) / block * block;
  const std::int64_t width = padded(sizes.head_dim) + 16, out_width = padded(sizes.value_dim) + 16;
  return (keys + block) * (width + out_width) + block * score_row + 2 * block + wide_block + 256;
}

}  // namespace

void set_attention_forward(Table& table) {
  table.f32.attention_forward = attention_forward<float>;
  table.bf16.attention_forward = attention_forward<BFloat16>;
  table.f16.attention_forward = attention_forward<Float16>;
  table.attention_forward_scratch = attention_scratch;
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
