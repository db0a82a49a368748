// Blocked causal attention; all sums in fp32. Forward takes `block` queries by `wide_block` keys at
// a time, backward `block` by `block`. D' is the head dimension rounded up to whole vectors; the
// padding holds zeros.
#include "kernels/cpu/simd/dropout.h"
#include "kernels/cpu/simd/leaves.h"
#include "kernels/cpu/simd/product.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

constexpr std::int64_t block = 64;
// Scores of a block of queries and their values stay in the level 2 cache, and a row's maximum, sum
// and correction are paid once for so many keys.
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

// to[count][D'] = factor · from[count][D], zeros beyond D. Rows lie far apart, where the hardware
// does not look ahead.
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

// to[D][block] = transpose of from[count][D'], zeros beyond count.
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

// Calls body(begin, end) for the rows of a block: in one go, or on the diagonal in strips, each of
// which leaves out most of what it may not see.
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

// How many keys of the block at k0 the query may see.
TRIDENT_INLINE std::int64_t visible(std::int64_t query, std::int64_t k0, std::int64_t keys) {
  return least(keys, query - k0 + 1);
}

std::uint64_t dropout_element(std::int64_t head, std::int64_t s, std::int64_t query,
                              std::int64_t key) {
  return static_cast<std::uint64_t>((head * s + query) * s + key);
}

// Rows are whole vectors: what lies beyond the elements asked for may be read and written.
template <class Lanes>
TRIDENT_INLINE Lanes whole(Lanes lanes) {
  return lanes;
}
TRIDENT_INLINE All whole(Some) {
  return {};
}

// The same for all rows: exponentials of a row of scores, 0 beyond n up to `width`; their sum.
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

// What a query's row of scores leaves out of n: those from `seen` on count as minus infinity.
TRIDENT_INLINE void hide(float* row, std::int64_t seen, std::int64_t n) {
  const std::int64_t begin = seen / W * W;
  for (std::int64_t i = begin; i < n; i += W) {
    const F rest = splat(-__builtin_inff());
    store(row + i, i == begin ? first_n(load(row + i), rest, seen - begin) : rest);
  }
}

// Takes n scores in each of `rows` rows into the running maxima, totals and outputs; leaves in the
// rows the exponentials relative to the new maxima. A row is a chain of dependent steps: what can
// be done for many rows at once is.
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

// Turns a row of scores into probabilities (dropped out where factors are given) and the gradient
// of the probabilities into that of the scores.
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

template <class T>
void attention_forward(const AttentionTask<T>& task, float* memory) {
  const std::int64_t s = task.sequence, d = task.head_dim, width = padded(d);
  const std::int64_t blocks = (s + block - 1) / block;
  Scratch scratch{memory};
  float* keys = scratch.take(blocks * d * block);  // a transposed [D][block] for each block
  float* values = scratch.take(s * width);
  float* queries = scratch.take(block * width);
  float* scores = scratch.take(block * score_row);
  float* out = scratch.take(block * width);
  float* largest = scratch.take(block);
  float* totals = scratch.take(block);
  float* factors = scratch.take(wide_block);

  for (std::int64_t k0 = 0; k0 < s; k0 += block) {
    const std::int64_t count = least(block, s - k0);
    pack_rows(task.k + k0 * task.row, task.row, count, d, 1.0f, out);
    transpose(out, count, d, keys + k0 * d);
  }
  pack_rows(task.v, task.row, s, d, 1.0f, values);

  for (std::int64_t head = 0; head < task.heads; ++head) {
    for (std::int64_t q0 = 0; q0 < s; q0 += block) {
      const std::int64_t rows = least(block, s - q0);
      pack_rows(task.q + q0 * task.row + head * d, task.row, rows, d, inverse_root(d), queries);
      for (std::int64_t k0 = 0; k0 < q0 + rows; k0 += wide_block) {
        const bool diagonal = k0 + wide_block > q0;
        // The keys that a strip of queries ending before `end` sees of this block.
        const auto seen_by = [&](std::int64_t end) {
          return least(wide_block, q0 - k0 + (diagonal ? end : rows));
        };
        in_strips(diagonal, rows, [&](std::int64_t begin, std::int64_t end) {
          const std::int64_t n = padded(seen_by(end));
          for (std::int64_t k = 0; k < n; k += block) {
            product({queries + begin * width, width, 1}, keys + (k0 + k) * d, block,
                    scores + begin * score_row + k, score_row, end - begin, least(block, n - k), d,
                    false);
          }
          if (diagonal) {
            for (std::int64_t r = begin; r < end; ++r) {
              hide(scores + r * score_row, visible(q0 + r, k0, wide_block), n);
            }
          }
          online_softmax(scores + begin * score_row, end - begin, n, k0 == 0, largest + begin,
                         totals + begin, out + begin * width, width);
          if (task.dropout.threshold == 0) return;
          for (std::int64_t r = begin; r < end; ++r) {
            float* const row = scores + r * score_row;
            const std::int64_t seen = visible(q0 + r, k0, wide_block);
            dropout_factors(task.dropout, task.sample,
                            dropout_element(task.first_head + head, s, q0 + r, k0), seen, factors);
            each(seen, [=](std::int64_t i, auto lanes) {
              store(row + i, only(load(row + i) * load(factors + i), lanes));
            });
          }
        });
        in_strips(diagonal, rows, [&](std::int64_t begin, std::int64_t end) {
          product({scores + begin * score_row, score_row, 1}, values + k0 * width, width,
                  out + begin * width, width, end - begin, width, seen_by(end), k0 > 0);
        });
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        unpack_rows(out + r * width, 1, d, 1.0f / totals[r],
                    task.out + (q0 + r) * task.out_row + head * d, task.out_row);
        task.log_sum_exp[head * s + q0 + r] = largest[r] + __builtin_logf(totals[r]);
      }
    }
  }
}

template <class T>
void attention_backward(const AttentionTask<T>& task, float* memory) {
  const std::int64_t s = task.sequence, d = task.head_dim, width = padded(d);
  Scratch scratch{memory};
  float* key_grads = scratch.take(s * width);
  float* value_grads = scratch.take(s * width);
  float* queries = scratch.take(s * width);
  float* out_grads = scratch.take(s * width);
  float* query_grads = scratch.take(s * width);
  float* keys = scratch.take(block * width);
  float* keys_transposed = scratch.take(block * width);
  float* values = scratch.take(block * width);
  float* values_transposed = scratch.take(block * width);
  float* probabilities = scratch.take(block * block);
  float* score_grads = scratch.take(block * block);
  float* factors = scratch.take(block);
  float* deltas = scratch.take(s);
  const bool dropping = task.dropout.threshold != 0;
  const float scale = inverse_root(d);

  clear(key_grads, s * width);
  clear(value_grads, s * width);
  for (std::int64_t head = 0; head < task.heads; ++head) {
    const float* log_sums = task.log_sum_exp + head * s;
    pack_rows(task.q + head * d, task.row, s, d, scale, queries);
    pack_rows(task.grad_out + head * d, task.out_row, s, d, 1.0f, out_grads);
    clear(query_grads, s * width);
    for (std::int64_t t = 0; t < s; ++t) {  // delta = out · grad_out
      F sum{};
      each(d, [&](std::int64_t i, auto lanes) {
        sum = fma(load(task.out + t * task.out_row + head * d + i, lanes),
                  load(out_grads + t * width + i), sum);
      });
      deltas[t] = sum_lanes(sum);
    }
    for (std::int64_t k0 = 0; k0 < s; k0 += block) {
      const std::int64_t count = least(block, s - k0), columns = padded(count);
      pack_rows(task.k + k0 * task.row, task.row, count, d, 1.0f, keys);
      transpose(keys, count, d, keys_transposed);
      pack_rows(task.v + k0 * task.row, task.row, count, d, 1.0f, values);
      transpose(values, count, d, values_transposed);
      for (std::int64_t q0 = k0; q0 < s; q0 += block) {
        const std::int64_t rows = least(block, s - q0);
        const bool diagonal = k0 == q0;
        in_strips(diagonal, rows, [&](std::int64_t begin, std::int64_t end) {
          const std::int64_t n = diagonal ? padded(end) : columns;
          product({queries + (q0 + begin) * width, width, 1}, keys_transposed, block,
                  probabilities + begin * block, block, end - begin, n, d, false);
          product({out_grads + (q0 + begin) * width, width, 1}, values_transposed, block,
                  score_grads + begin * block, block, end - begin, n, d, false);
          for (std::int64_t r = begin; r < end; ++r) {
            const std::int64_t seen = visible(q0 + r, k0, count);
            if (dropping) {
              dropout_factors(task.dropout, task.sample,
                              dropout_element(task.first_head + head, s, q0 + r, k0), seen,
                              factors);
              for (std::int64_t i = seen; i < n; ++i) factors[i] = 0;
            }
            softmax_backward(probabilities + r * block, score_grads + r * block, seen, n,
                             log_sums[q0 + r], deltas[q0 + r], dropping ? factors : nullptr);
          }
        });
        in_strips(diagonal, count, [&](std::int64_t begin, std::int64_t end) {
          const std::int64_t first =
              diagonal ? begin : 0;  // earlier queries see none of these keys
          product({probabilities + first * block + begin, 1, block},
                  out_grads + (q0 + first) * width, width, value_grads + (k0 + begin) * width,
                  width, end - begin, width, rows - first, true);
          product({score_grads + first * block + begin, 1, block}, queries + (q0 + first) * width,
                  width, key_grads + (k0 + begin) * width, width, end - begin, width, rows - first,
                  true);
        });
        in_strips(diagonal, rows, [&](std::int64_t begin, std::int64_t end) {
          product({score_grads + begin * block, block, 1}, keys, width,
                  query_grads + (q0 + begin) * width, width, end - begin, width,
                  diagonal ? end : count, true);
        });
      }
    }
    unpack_rows(query_grads, s, d, scale, task.grad_q + head * d, task.row);
  }
  unpack_rows(key_grads, s, d, 1.0f, task.grad_k, task.row);
  unpack_rows(value_grads, s, d, 1.0f, task.grad_v, task.row);
}

std::int64_t attention_scratch(std::int64_t sequence, std::int64_t head_dim, bool backward) {
  const std::int64_t rows = (sequence + block - 1) / block * block, width = padded(head_dim) + 16;
  return backward ? 5 * rows * width + 4 * block * width + 2 * block * block + 2 * rows + 256
                  : 2 * rows * width + 2 * block * width + block * score_row + 2 * block +
                        wide_block + 256;
}

template <class T>
void set(Leaves<T>& leaves) {
  leaves.attention_forward = attention_forward<T>;
  leaves.attention_backward = attention_backward<T>;
}

}  // namespace

void set_attention(Table& table) {
  set(table.f32);
  set(table.bf16);
  set(table.f16);
  table.attention_scratch = attention_scratch;
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
