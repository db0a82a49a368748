// Attention, backward: `block` queries by `block` keys at a time, without the blocks that the mask
// hides. All sums are fp32.
#include "kernels/cpu/simd/attention_heads.h"
#include "kernels/cpu/simd/leaves.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

struct BackwardScratch {
  // `sums`: those of keys and values are here, not in AttentionSums.
  BackwardScratch(Scratch from, const AttentionSizes& sizes, bool sums)
      : key_grads(sums ? from.take(sizes.keys * padded(sizes.head_dim)) : nullptr),
        value_grads(sums ? from.take(sizes.keys * padded(sizes.value_dim)) : nullptr),
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

// Packs a head's queries and output gradients from query `first` on, and computes delta = out ·
// grad_out for each of them.
template <class T>
TRIDENT_INLINE void pack_head(const AttentionTask<T>& task, const BackwardScratch& own,
                              std::int64_t head, std::int64_t first) {
  const std::int64_t s = task.queries, d = task.head_dim, e = task.value_dim, width = padded(e);
  pack_rows(task.q.from(first, head * d), s - first, d, task.scale,
            own.queries + first * padded(d));
  pack_rows(task.grad_out.from(first, head * e), s - first, e, 1.0f, own.out_grads + first * width);
  clear(own.query_grads, s * padded(d));
  for (std::int64_t t = first; t < s; ++t) {
    F sum{};
    each(e, [&](std::int64_t i, auto lanes) {
      sum =
          fma(load(task.out.at(t) + head * e + i, lanes), load(own.out_grads + t * width + i), sum);
    });
    own.deltas[t] = sum_lanes(sum);
  }
}

// Computes the probabilities of a tile, with dropout if it is set, and the gradients of its scores.
template <class T>
TRIDENT_INLINE void backward_scores(const AttentionTask<T>& task, const BackwardScratch& own,
                                    const Tile& at, std::int64_t count) {
  const std::int64_t d = task.head_dim, width = padded(d), out_width = padded(task.value_dim);
  in_strips(at.diagonal, at.rows, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t n = padded(at.diagonal ? seen_before(task, at, end, count) : count);
    if (n > 0) {
      product({own.queries + (at.q0 + begin) * width, width, 1}, own.keys_transposed, block,
              own.probabilities + begin * block, block, end - begin, n, d, false);
      product({own.out_grads + (at.q0 + begin) * out_width, out_width, 1}, own.values_transposed,
              block, own.score_grads + begin * block, block, end - begin, n, task.value_dim, false);
    }
    score_gradients(task, at, begin, end, count, n, own.probabilities, own.score_grads, own.deltas,
                    own.factors);
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
void attention_backward(const AttentionTask<T>& task, std::int64_t begin, std::int64_t end,
                        const AttentionSums& sums, float* memory) {
  backward_heads<BackwardScratch>(
      task, begin, end, sums, memory,
      [&](const BackwardScratch& own, std::int64_t head, std::int64_t first) {
        pack_head(task, own, head, first);
      },
      [&](const BackwardScratch& own, std::int64_t head, std::int64_t k0) {
        backward_keys(task, own, head, k0);
      });
}

template <class T>
void attention_sum(const float* const* parts, std::int64_t count, std::int64_t begin,
                   std::int64_t end, std::int64_t d, float factor, Rows<T> to) {
  const std::int64_t width = padded(d);
  for (std::int64_t t = begin; t < end; ++t) {
    T* const row = to.at(t);
    each(d, [=](std::int64_t i, auto lanes) {
      F total = load(parts[0] + t * width + i);
      for (std::int64_t part = 1; part < count; ++part) {
        total = total + load(parts[part] + t * width + i);
      }
      store(row + i, total * splat(factor), lanes);
    });
  }
}

template <class T>
void set(Leaves<T>& leaves) {
  leaves.attention_backward = attention_backward<T>;
  leaves.attention_sum = attention_sum<T>;
}

std::int64_t attention_scratch(const AttentionSizes& sizes, bool sums) {
  const auto whole_blocks = [](std::int64_t n) { return (n + block - 1) / block * block; };
  const std::int64_t queries = whole_blocks(sizes.queries), keys = whole_blocks(sizes.keys);
  const std::int64_t width = padded(sizes.head_dim) + 16, out_width = padded(sizes.value_dim) + 16;
  return (2 * queries + 2 * block) * width + (queries + 2 * block) * out_width +
         (sums ? keys * (width + out_width) : 0) + 2 * block * block + 2 * queries + 256;
}

}  // namespace

void set_attention_backward(Table& table) {
  set(table.f32);
  set(table.bf16);
  set(table.f16);
  table.attention_backward_scratch = attention_scratch;
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
