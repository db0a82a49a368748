// Attention of one query to cached keys and values.
#include "kernels/cpu/simd/attention_tiles.h"
#include "kernels/cpu/simd/leaves.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

template <class T>
void attend(const AttendTask<T>& task, float* scores, T* out) {
  const float scale = task.scale;
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

}  // namespace

void set_attention_cached(Table& table) {
  table.f32.attend = attend<float>;
  table.bf16.attend = attend<BFloat16>;
  table.f16.attend = attend<Float16>;
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
