// Queries, keys, values and gradients of the output are multiplied as they are; probabilities and
// the gradients of scores are rounded to bf16 first. Sums and softmax are fp32, as in
// attention_forward.cc and attention_backward.cc, whose blocks and order these functions have.
// D″ and E″ are D and E rounded up to 32 terms; D' and E' as in attention_tiles.h.
//
// Products take whole steps of terms, those of hidden keys times 0. So a value that isn't finite
// reaches queries before it in its block, as it does within 16 of them in the other loops.
#include "kernels/cpu/simd/attention_bf16.h"

#include "kernels/cpu/simd/attention_heads.h"
#include "kernels/cpu/simd/bf16_products.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

TRIDENT_INLINE std::int64_t whole_blocks(std::int64_t n) {
  return (n + block - 1) / block * block;
}

// to[t] = bf16 of `rows` rows of n numbers, `from_row` apart, with zeros up to `width` terms. A row
// may be written over its own numbers.
static void round_rows(const float* from, std::int64_t from_row, std::int64_t rows, std::int64_t n,
                       std::int64_t width, BFloat16* to, std::int64_t to_row) {
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t i = 0; i < width; i += 16) {
      const F x = i < n ? load(from + t * from_row + i) : F{};
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + t * to_row + i),
                          (__m256i)_mm512_cvtneps_pbh(x));
    }
  }
}

// to[rows / 2][block] = factor · pairs of from[rows][block], in ascending order, so that they may
// share memory.
static void round_pairs(const float* from, std::int64_t rows, float factor, Pair* to) {
  const F scale = splat(factor);
  for (std::int64_t t = 0; t < rows; t += 2) {
    __m512i pairs[block / 16];
#pragma GCC unroll 4
    for (int i = 0; i < block / 16; ++i) {
      pairs[i] = paired(halves(load(from + t * block + 16 * i) * scale),
                        halves(load(from + (t + 1) * block + 16 * i) * scale));
    }
#pragma GCC unroll 4
    for (int i = 0; i < block / 16; ++i) {
      _mm512_storeu_si512(to + t / 2 * block + 16 * i, pairs[i]);
    }
  }
}

// The factor of the scores as a power of two, by which bf16 numbers are multiplied exactly, and the
// rest from 1 on.
struct Scale {
  float power = 1, rest = 1;
  explicit Scale(float scale) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, scale);
    if ((bits >> 23 & 0xff) == 0) {  // 0, or smaller than any normal number
      rest = scale;
      return;
    }
    power = __builtin_bit_cast(float, bits & 0x7f800000u);
    rest = scale / power;
  }
};

TRIDENT_INLINE void multiply(float* x, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; i += W) store(x + i, load(x + i) * splat(factor));
}

// ---- forward ----

struct ForwardScratch : SoftmaxScratch {
  ForwardScratch(Scratch from, const AttentionSizes& sizes)
      : keys(take<Pair>(from, whole_blocks(sizes.keys) * whole_terms(sizes.head_dim))),
        values(take<Pair>(from, whole_blocks(sizes.keys) * padded(sizes.value_dim))),
        queries(take<BFloat16>(from, block * whole_terms(sizes.head_dim))) {
    SoftmaxScratch::take(from, sizes);
  }
  // Memory for `count` numbers of 16 bits.
  template <class U>
  static U* take(Scratch& from, std::int64_t count) {
    return reinterpret_cast<U*>(from.take(count / 2));
  }
  BFloat16* rounded_scores() const { return reinterpret_cast<BFloat16*>(scores); }

  Pair* keys;    // [D″ / 2][block] for each block of keys
  Pair* values;  // [keys / 2][E']
  BFloat16* queries;
};

// Computes the output of a head's block of queries at q0.
TRIDENT_INLINE void forward_queries(const AttentionTask<BFloat16>& task, const ForwardScratch& own,
                                    std::int64_t head, std::int64_t q0) {
  const std::int64_t d = task.head_dim, width = whole_terms(d), out_width = padded(task.value_dim);
  const std::int64_t rows = least(block, task.queries - q0);
  const Scale scale(task.scale);
  pack_rows(task.q.from(q0, head * d), rows, block, d, scale.power, own.queries);
  const std::int64_t begin_key = first_key(task, q0) / block * block;
  const std::int64_t end = end_key(task, q0 + rows - 1),
                     last_first = first_key(task, q0 + rows - 1);
  if (begin_key >= end) begin_queries(own, 0, rows, out_width);
  for (std::int64_t k0 = begin_key; k0 < end; k0 += wide_block) {
    const bool diagonal = k0 + wide_block > least(q0 + task.offset(), task.keys);
    const Tile at{head, q0, k0, rows, diagonal, last_first > k0};
    const auto seen_by = [&](std::int64_t last) {
      return diagonal ? seen_before(task, at, last, wide_block) : wide_block;
    };
    in_strips(diagonal, rows, [&](std::int64_t begin, std::int64_t last) {
      const std::int64_t seen = seen_by(last), n = padded(seen);
      if (seen == 0) {
        if (k0 == begin_key) begin_queries(own, begin, last, out_width);
        return;
      }
      for (std::int64_t k = 0; k < n; k += block) {
        product({own.queries + begin * width, width, own.keys + (k0 + k) * width / 2, block,
                 own.scores + begin * score_row + k, score_row},
                padded(last - begin), least(block, n - k), width, false);
      }
      if (scale.rest != 1) {
        for (std::int64_t r = begin; r < last; ++r) {
          multiply(own.scores + r * score_row, n, scale.rest);
        }
      }
      merge_scores(task, own, at, begin, last, n, k0 == begin_key);
      round_rows(own.scores + begin * score_row, score_row, last - begin, n, whole_terms(seen),
                 own.rounded_scores() + 2 * begin * score_row, 2 * score_row);
    });
    in_strips(diagonal, rows, [&](std::int64_t begin, std::int64_t last) {
      const std::int64_t seen = seen_by(last);
      if (seen == 0) return;
      product({own.rounded_scores() + 2 * begin * score_row, 2 * score_row,
               own.values + k0 / 2 * out_width, out_width, own.out + begin * out_width, out_width},
              padded(last - begin), out_width, whole_terms(seen), k0 > begin_key);
    });
  }
  finish_queries(task, own, head, q0, rows);
}

}  // namespace

void attention_forward(const AttentionTask<BFloat16>& task, std::int64_t begin, std::int64_t end,
                       float* memory) {
  const std::int64_t units = (task.queries + block - 1) / block;
  const ForwardScratch own({memory}, task);
  const ProductScope scope;
  const auto [first, last] = keys_of(task, begin, end);
  for (std::int64_t k0 = first; k0 < last; k0 += block) {
    const std::int64_t count = least(block, task.keys - k0);
    pack_columns(task.k.from(k0), count, block, task.head_dim,
                 own.keys + k0 * whole_terms(task.head_dim) / 2);
    pack_pairs(task.v.from(k0), count, block, task.value_dim,
               own.values + k0 / 2 * padded(task.value_dim));
  }
  for (std::int64_t unit = begin; unit < end; ++unit) {
    forward_queries(task, own, unit / units, unit % units * block);
  }
}

// ---- backward ----

namespace {

struct BackwardScratch {
  // `sums`: those of keys and values are here, not in AttentionSums.
  BackwardScratch(Scratch from, const AttentionSizes& sizes, bool sums)
      : queries(whole_blocks(sizes.queries)),
        key_grads(sums ? from.take(sizes.keys * padded(sizes.head_dim)) : nullptr),
        value_grads(sums ? from.take(sizes.keys * padded(sizes.value_dim)) : nullptr),
        query_rows(take<BFloat16>(from, queries * whole_terms(sizes.head_dim))),
        query_columns(take<BFloat16>(from, queries * padded(sizes.head_dim))),
        grad_rows(take<BFloat16>(from, queries * whole_terms(sizes.value_dim))),
        grad_columns(take<BFloat16>(from, queries * padded(sizes.value_dim))),
        query_grads(from.take(sizes.queries * padded(sizes.head_dim))),
        keys(take<Pair>(from, block * whole_terms(sizes.head_dim))),
        key_pairs(take<Pair>(from, block * padded(sizes.head_dim))),
        values(take<Pair>(from, block * whole_terms(sizes.value_dim))),
        key_sums(from.take(block * padded(sizes.head_dim))),
        value_sums(from.take(block * padded(sizes.value_dim))),
        probabilities(from.take(block * block)),
        score_grads(from.take(block * block)),
        factors(from.take(block)),
        deltas(from.take(sizes.queries)) {}
  template <class U>
  static U* take(Scratch& from, std::int64_t count) {
    return ForwardScratch::take<U>(from, count);
  }
  // The rounded numbers of a tile, in the memory of its scores.
  Pair* probability_pairs() const { return reinterpret_cast<Pair*>(probabilities); }
  Pair* score_grad_pairs() const { return reinterpret_cast<Pair*>(score_grads); }
  BFloat16* score_grad_rows() const {
    return reinterpret_cast<BFloat16*>(probabilities + block * block / 2);
  }

  std::int64_t queries;                                             // rounded up to blocks
  float *key_grads, *value_grads;                                   // sums over heads
  BFloat16 *query_rows, *query_columns, *grad_rows, *grad_columns;  // of one head
  float* query_grads;
  Pair *keys, *key_pairs, *values;     // of one block of keys
  float *key_sums, *value_sums;        // its gradients, [D'][block] and [E'][block]
  float *probabilities, *score_grads;  // of one tile
  float *factors, *deltas;
};

// Packs a head's queries and output gradients from query `first` on, a multiple of a block, and
// computes delta = out · grad_out for each of them.
static void pack_head(const AttentionTask<BFloat16>& task, const BackwardScratch& own,
                      std::int64_t head, std::int64_t first, float power) {
  const std::int64_t s = task.queries, d = task.head_dim, e = task.value_dim, all = own.queries;
  pack_rows(task.q.from(first, head * d), s - first, all - first, d, power,
            own.query_rows + first * whole_terms(d));
  pack_rows(task.grad_out.from(first, head * e), s - first, all - first, e, 1,
            own.grad_rows + first * whole_terms(e));
  pack_transposed(task.q.from(0, head * d), first, s, all, d, power, own.query_columns, all);
  pack_transposed(task.grad_out.from(0, head * e), first, s, all, e, 1, own.grad_columns, all);
  clear(own.query_grads, s * padded(d));
  for (std::int64_t t = first; t < s; ++t) {
    F sum{};
    each(e, [&](std::int64_t i, auto lanes) {
      sum = fma(load(task.out.at(t) + head * e + i, lanes),
                load(task.grad_out.at(t) + head * e + i, lanes), sum);
    });
    own.deltas[t] = sum_lanes(sum);
  }
}

// The scores of a tile and the gradients of its probabilities, then both as the right operands of
// the products that follow, and the gradients of the scores as a left one. Returns the number of
// terms over the queries.
TRIDENT_INLINE std::int64_t backward_scores(const AttentionTask<BFloat16>& task,
                                            const BackwardScratch& own, const Tile& at,
                                            std::int64_t count, const Scale& scale) {
  const std::int64_t width = whole_terms(task.head_dim), out_width = whole_terms(task.value_dim);
  product({own.query_rows + at.q0 * width, width, own.keys, block, own.probabilities, block},
          padded(at.rows), block, width, false);
  product({own.grad_rows + at.q0 * out_width, out_width, own.values, block, own.score_grads, block},
          padded(at.rows), block, out_width, false);
  if (scale.rest != 1) multiply(own.probabilities, at.rows * block, scale.rest);
  score_gradients(task, at, 0, at.rows, count, block, own.probabilities, own.score_grads,
                  own.deltas, own.factors);
  const std::int64_t all = whole_terms(at.rows);
  clear(own.probabilities + at.rows * block, (all - at.rows) * block);
  clear(own.score_grads + at.rows * block, (all - at.rows) * block);
  round_pairs(own.probabilities, all, 1, own.probability_pairs());
  round_rows(own.score_grads, block, all, block, block, own.score_grad_rows(), block);
  round_pairs(own.score_grads, all, scale.rest, own.score_grad_pairs());
  return all;
}

// Adds the contribution of a tile to the gradients of its values, keys and queries.
TRIDENT_INLINE void add_gradients(const AttentionTask<BFloat16>& task, const BackwardScratch& own,
                                  const Tile& at, std::int64_t all, bool first) {
  const std::int64_t width = padded(task.head_dim), out_width = padded(task.value_dim);
  product({own.grad_columns + at.q0, own.queries, own.probability_pairs(), block, own.value_sums,
           block},
          out_width, block, all, !first);
  product(
      {own.query_columns + at.q0, own.queries, own.score_grad_pairs(), block, own.key_sums, block},
      width, block, all, !first);
  const std::int64_t whole = at.rows / 16 * 16;
  if (whole > 0) {
    product({own.score_grad_rows(), block, own.key_pairs, width, own.query_grads + at.q0 * width,
             width},
            whole, width, block, true);
  }
  if (whole == at.rows) return;
  // The last rows of fewer than a tile. The pairs of the gradients of the scores have been used.
  float* const some = own.score_grads;
  constexpr std::int64_t most_columns = block * block / 16;
  for (std::int64_t column = 0; column < width; column += most_columns) {
    const std::int64_t columns = least(most_columns, width - column);
    product({own.score_grad_rows() + whole * block, block, own.key_pairs + column, width, some,
             columns},
            16, columns, block, false);
    for (std::int64_t r = whole; r < at.rows; ++r) {
      float* const to = own.query_grads + (at.q0 + r) * width + column;
      const float* const from = some + (r - whole) * columns;
      for (std::int64_t i = 0; i < columns; i += W) store(to + i, load(to + i) + load(from + i));
    }
  }
}

// to[count][row] += the transpose of sums[row][block].
static void add_transposed(const float* sums, std::int64_t count, std::int64_t row, float* to) {
  for (std::int64_t t = 0; t < count; t += 16) {
    for (std::int64_t i = 0; i < row; i += 16) {
      __m512i rows[16];
      for (int r = 0; r < 16; ++r) rows[r] = _mm512_loadu_si512(sums + (i + r) * block + t);
      transpose(rows);
      for (int r = 0; r < 16 && t + r < count; ++r) {
        float* const own = to + (t + r) * row + i;
        store(own, load(own) + (F)_mm512_castsi512_ps(rows[r]));
      }
    }
  }
}

// Adds the contributions of a head's queries to the gradients of the block of keys at k0, and of
// these keys to the gradients of the queries.
static void backward_keys(const AttentionTask<BFloat16>& task, const BackwardScratch& own,
                          std::int64_t head, std::int64_t k0, const Scale& scale) {
  const std::int64_t count = least(block, task.keys - k0), offset = task.offset();
  const std::int64_t first_query = most(0, k0 - offset) / block * block;
  if (first_query >= task.queries) return;
  pack_columns(task.k.from(k0), count, block, task.head_dim, own.keys);
  pack_pairs(task.k.from(k0), count, block, task.head_dim, own.key_pairs);
  pack_columns(task.v.from(k0), count, block, task.value_dim, own.values);
  bool first = true;
  for (std::int64_t q0 = first_query; q0 < task.queries; q0 += block) {
    if (first_key(task, q0) >= k0 + count) break;  // nor do later queries see these keys
    const std::int64_t rows = least(block, task.queries - q0);
    const Tile at{head, q0, k0, rows,
                  q0 + offset<k0 + block - 1, first_key(task, q0 + rows - 1)> k0};
    const std::int64_t all = backward_scores(task, own, at, count, scale);
    add_gradients(task, own, at, all, first);
    first = false;
  }
  if (first) return;
  const std::int64_t width = padded(task.head_dim), out_width = padded(task.value_dim);
  add_transposed(own.value_sums, count, out_width, own.value_grads + k0 * out_width);
  add_transposed(own.key_sums, count, width, own.key_grads + k0 * width);
}

}  // namespace

void attention_backward(const AttentionTask<BFloat16>& task, std::int64_t begin, std::int64_t end,
                        const AttentionSums& sums, float* memory) {
  const ProductScope scope;
  const Scale scale(task.scale);
  backward_heads<BackwardScratch>(
      task, begin, end, sums, memory,
      [&](const BackwardScratch& own, std::int64_t head, std::int64_t first) {
        pack_head(task, own, head, first / block * block, scale.power);
      },
      [&](const BackwardScratch& own, std::int64_t head, std::int64_t k0) {
        backward_keys(task, own, head, k0, scale);
      });
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
