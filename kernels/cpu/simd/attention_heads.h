// The loops over the heads of attention that all instruction sets share.
#pragma once

#include "kernels/cpu/simd/attention_softmax.h"

namespace trident::cpu::simd::TRIDENT_ISA {

struct KeyRange {
  std::int64_t first, last;
};

// The keys that the units [begin, end) see: blocks of queries, counted through all heads. A part of
// one head needs those of its queries alone.
template <class T>
TRIDENT_INLINE KeyRange keys_of(const AttentionTask<T>& task, std::int64_t begin,
                                std::int64_t end) {
  const std::int64_t units = (task.queries + block - 1) / block;
  if (begin / units != (end - 1) / units) return {0, task.keys};
  return {first_key(task, begin % units * block) / block * block,
          end_key(task, least(task.queries, ((end - 1) % units + 1) * block) - 1)};
}

// Computes the gradients of the units [begin, end): blocks of keys, counted through all heads.
// pack(scratch, head, first) prepares a head's queries from query `first` on;
// add_keys(scratch, head, k0) adds the contributions of the block of keys at k0.
template <class Own, class T, class Pack, class AddKeys>
TRIDENT_INLINE void backward_heads(const AttentionTask<T>& task, std::int64_t begin,
                                   std::int64_t end, const AttentionSums& sums, float* memory,
                                   Pack pack, AddKeys add_keys) {
  const std::int64_t s = task.queries, d = task.head_dim, e = task.value_dim;
  const std::int64_t units = (task.keys + block - 1) / block;  // of a head
  const bool is_part = begin > 0 || end < task.heads * units;
  Own own({memory}, task, !is_part);
  float* const query_grads = own.query_grads;
  if (is_part) own.key_grads = sums.keys, own.value_grads = sums.values;
  const std::int64_t first_row = task.heads == 1 ? begin * block : 0;
  const std::int64_t rows = task.heads == 1 ? least(end * block, task.keys) - first_row : task.keys;
  clear(own.key_grads + first_row * padded(d), rows * padded(d));
  clear(own.value_grads + first_row * padded(e), rows * padded(e));
  for (std::int64_t head = begin / units; head * units < end; ++head) {
    const std::int64_t first = most(0, begin - head * units),
                       last = least(units, end - head * units);
    own.query_grads = first > 0      ? sums.first_queries
                      : last < units ? sums.last_queries
                                     : query_grads;
    // Queries before these see none of the keys, but have sinks.
    const std::int64_t seeing = most(0, first * block - task.offset()) / block * block;
    pack(own, head, task.sinks && first == 0 ? 0 : least(seeing, s));
    if (task.sinks && first == 0) task.grad_sinks[head] = sink_gradient(task, own.deltas, head);
    for (std::int64_t unit = first; unit < last; ++unit) {
      add_keys(own, head, unit * block);
    }
    if (first > 0 || last < units) continue;
    unpack_rows(query_grads, s, d, task.scale, task.grad_q.from(0, head * d));
  }
  if (is_part) return;
  unpack_rows(own.key_grads, task.keys, d, 1.0f, task.grad_k);
  unpack_rows(own.value_grads, task.keys, e, 1.0f, task.grad_v);
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
