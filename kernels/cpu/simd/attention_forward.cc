// Attention, forward: `block` queries by `wide_block` keys at a time, without the blocks that the
// mask hides. All sums are fp32.
#include "kernels/cpu/simd/attention_heads.h"
#include "kernels/cpu/simd/leaves.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

struct ForwardScratch : SoftmaxScratch {
  ForwardScratch(Scratch from, const AttentionSizes& sizes)
      : keys(from.take((sizes.keys + block - 1) / block * sizes.head_dim * block)),
        values(from.take(sizes.keys * padded(sizes.value_dim))),
        queries(from.take(block * padded(sizes.head_dim))) {
    take(from, sizes);
  }

  float* keys;  // one transposed [D][block] for each block of keys
  float *values, *queries;
};

// Computes the exponentials of queries [begin, end) of a tile, with dropout if it is set. The last
// of these queries sees `last_sees` keys. `first`: no tile of these queries came before.
template <class T>
TRIDENT_INLINE void forward_scores(const AttentionTask<T>& task, const ForwardScratch& own,
                                   const Tile& at, std::int64_t begin, std::int64_t end,
                                   std::int64_t last_sees, bool first) {
  const std::int64_t d = task.head_dim, width = padded(d), n = padded(last_sees);
  for (std::int64_t k = 0; k < n; k += block) {
    product({own.queries + begin * width, width, 1}, own.keys + (at.k0 + k) * d, block,
            own.scores + begin * score_row + k, score_row, end - begin, least(block, n - k), d,
            false);
  }
  merge_scores(task, own, at, begin, end, n, first);
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
  const auto [first, last] = keys_of(task, begin, end);
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
