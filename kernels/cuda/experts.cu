#include "kernels/experts.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.cuh"

namespace trident::cuda {
namespace {

constexpr int sort_threads = 256;

// The pairs of one expert, in the order of the pairs: a block for each expert.
struct Pairs {
  const std::int32_t* experts;
  std::int64_t count, all_experts;
};

__global__ void __launch_bounds__(sort_threads) count_kernel(Pairs pairs, std::int64_t* counts) {
  std::int64_t count = 0;
  for (std::int64_t i = threadIdx.x; i < pairs.count; i += sort_threads) {
    count += pairs.experts[i] == static_cast<std::int64_t>(blockIdx.x);
  }
  count = reduce_block<sort_threads, Sum>(count);
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

__global__ void __launch_bounds__(32) ends_kernel(std::int64_t experts, std::int64_t* ends) {
  if (threadIdx.x != 0) return;
  std::int64_t end = 0;
  for (std::int64_t e = 0; e < experts; ++e) ends[e] = end += ends[e];
}

__global__ void __launch_bounds__(sort_threads)
    place_kernel(Pairs pairs, const std::int64_t* ends, std::int32_t* rows, std::int32_t* of_rows) {
  const std::int64_t expert = blockIdx.x;
  std::int64_t next = expert == 0 ? 0 : ends[expert - 1];
  for (std::int64_t begin = 0; begin < pairs.count; begin += sort_threads) {
    const std::int64_t i = begin + threadIdx.x;
    const bool here = i < pairs.count && pairs.experts[i] == expert;
    const Ranked ranked = rank_in_block<sort_threads>(here);
    if (here) {
      const std::int64_t row = next + ranked.upto - 1;
      rows[i] = static_cast<std::int32_t>(row);
      of_rows[row] = static_cast<std::int32_t>(i);
    }
    next += ranked.all;
  }
}

// A block drops the pairs of one expert in one sample.
struct Dropping {
  const std::int32_t* experts;
  std::int64_t* counts;
  std::int32_t* kept;
  std::int64_t tokens, topk, all_experts, capacity, sequence, first_row;
};
__global__ void __launch_bounds__(sort_threads) drop_kernel(Dropping a) {
  const std::int64_t expert = blockIdx.x % a.all_experts, sample = blockIdx.x / a.all_experts;
  const std::int64_t from = sample * a.sequence - a.first_row, to = from + a.sequence;
  const std::int64_t begin = (from > 0 ? from : 0) * a.topk;
  const std::int64_t end = (to < a.tokens ? to : a.tokens) * a.topk;
  std::int64_t count = a.counts[blockIdx.x];
  for (std::int64_t at = begin; at < end; at += sort_threads) {
    const std::int64_t i = at + threadIdx.x;
    const bool here = i < end && a.experts[i] == expert;
    const Ranked ranked = rank_in_block<sort_threads>(here);
    if (here) {
      a.kept[i] = count + ranked.upto <= a.capacity ? static_cast<std::int32_t>(expert) : -1;
    }
    count += ranked.all;
  }
  // Without a token here, other threads may still read the count.
  if (threadIdx.x == 0 && begin < end) a.counts[blockIdx.x] = count;
}

// Before rows are placed.
struct NoRows {
  std::int32_t *rows, *pairs;
  template <int N>
  __device__ void run(std::int64_t i) const {
    rows[i] = pairs[i] = -1;
  }
};

template <class T>
struct Gather {
  const T* x;
  const std::int32_t* indices;
  T* y;
  std::int64_t divisor, columns;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t index = indices[i / columns];
    Packed<N, T> row{};
    if (index >= 0) row = fetch<N>(x + index / divisor * columns + i % columns);
    put(y + i, row);
  }
};

template <class T>
struct SumOfRows {
  const T* x;
  const std::int32_t* rows;
  T* y;
  std::int64_t topk, columns;
  bool accumulate;
  template <int N>
  __device__ void run(std::int64_t i) const {
    float total[N] = {};
    if (accumulate) load(y + i, total);
    const std::int32_t* const own = rows + i / columns * topk;
    for (std::int64_t k = 0; k < topk; ++k) {
      if (own[k] < 0) continue;
      float row[N];
      load(x + own[k] * columns + i % columns, row);
#pragma unroll
      for (int j = 0; j < N; ++j) total[j] += row[j];
    }
    store(y + i, total);
  }
};

template <class T>
struct Activation {
  const T* x;
  const float* weights;
  T* y;
  std::int64_t columns;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const T* const gate = x + i / columns * 2 * columns + i % columns;
    const float weight = weights[i / columns];
    float g[N], u[N];
    load(gate, g);
    load(gate + columns, u);
#pragma unroll
    for (int j = 0; j < N; ++j) u[j] *= g[j] * sigmoid_of_negated<T>(-g[j]).value * weight;
    store(y + i, u);
  }
};

template <class T>
struct ActivationBackward {
  const T* x;
  const float* weights;
  const T* grad_y;
  T* grad_x;
  float* grad_weights;
  T* y;
  std::int64_t columns;
};
// A block handles a row.
template <class T>
__global__ void __launch_bounds__(128) activation_backward_kernel(ActivationBackward<T> a) {
  const std::int64_t row = blockIdx.x;
  const T* const gate = a.x + row * 2 * a.columns;
  const float weight = a.weights[row];
  float grad_weight = 0;
  for (std::int64_t i = threadIdx.x; i < a.columns; i += 128) {
    const float g = to_float(gate[i]), u = to_float(gate[i + a.columns]);
    const float dy = to_float(a.grad_y[row * a.columns + i]);
    const Sigmoid s = sigmoid_of_negated<T>(-g);
    const float silu = g * s.value, scaled = dy * weight;
    grad_weight += dy * (u * silu);
    a.y[row * a.columns + i] = rounded<T>(u * (g * s.value * weight));
    a.grad_x[row * 2 * a.columns + i] = rounded<T>(scaled * u * fmaf(silu, s.complement, s.value));
    a.grad_x[(row * 2 + 1) * a.columns + i] = rounded<T>(scaled * silu);
  }
  grad_weight = reduce_block<128, Sum>(grad_weight);
  if (threadIdx.x == 0) a.grad_weights[row] = grad_weight;
}

// A unit of two numbers, with the values that backward needs.
struct Unit {
  float gate, up, value;       // after the limits and the shift
  float gate_slope, up_slope;  // 0 or 1 behind the limits
  float sigmoid;

  __device__ Unit(const GatedUnit& unit, float g, float u) : gate_slope(1), up_slope(1) {
    if (unit.limit > 0) {
      gate_slope = g > unit.limit ? 0 : 1;
      up_slope = fabsf(u) > unit.limit ? 0 : 1;
      // NaN stays NaN.
      g = g > unit.limit ? unit.limit : g;
      u = u > unit.limit ? unit.limit : u < -unit.limit ? -unit.limit : u;
    }
    gate = g;
    up = u + unit.shift;
    sigmoid = 1 / (1 + expf(-unit.alpha * g));
    value = up * (g * sigmoid);
  }
};

// Where the gate and the up value of element i lie in a row of 2F.
struct UnitColumns {
  std::int64_t step, up;
  UnitColumns(const GatedUnit& unit, std::int64_t f)
      : step(unit.interleaved ? 2 : 1), up(unit.interleaved ? 1 : f) {}
};

template <class T>
struct GatedUnits {
  GatedUnit unit;
  UnitColumns at;
  const T* x;
  const float* weights;
  T* y;
  std::int64_t columns;
  template <int N>
  __device__ void run(std::int64_t i) const {
    static_assert(N == 1);
    const T* const gate = x + i / columns * 2 * columns + i % columns * at.step;
    const Unit u(unit, to_float(gate[0]), to_float(gate[at.up]));
    y[i] = rounded<T>(weights[i / columns] * u.value);
  }
};

// A block handles a row.
template <class T>
__global__ void __launch_bounds__(128)
    gated_units_backward_kernel(GatedUnit unit, UnitColumns at, ActivationBackward<T> a) {
  const std::int64_t row = blockIdx.x;
  const float weight = a.weights[row];
  float grad_weight = 0;
  for (std::int64_t i = threadIdx.x; i < a.columns; i += 128) {
    const std::int64_t gate = row * 2 * a.columns + i * at.step, up = gate + at.up;
    const Unit u(unit, to_float(a.x[gate]), to_float(a.x[up]));
    const float dy = to_float(a.grad_y[row * a.columns + i]), scaled = dy * weight;
    grad_weight += dy * u.value;
    const float slope = u.sigmoid * (1 + unit.alpha * u.gate * (1 - u.sigmoid));
    a.y[row * a.columns + i] = rounded<T>(weight * u.value);
    a.grad_x[gate] = rounded<T>(scaled * u.up * slope * u.gate_slope);
    a.grad_x[up] = rounded<T>(scaled * (u.gate * u.sigmoid) * u.up_slope);
  }
  grad_weight = reduce_block<128, Sum>(grad_weight);
  if (threadIdx.x == 0) a.grad_weights[row] = grad_weight;
}

template <class T>
struct Gated {
  const T* x;
  const T* gates;
  T* y;
  std::int64_t columns;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const float gate = sigmoid_of_negated<T>(-to_float(gates[i / columns])).value;
    float row[N], sum[N];
    load(x + i, row);
    load(y + i, sum);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += gate * row[j];
    store(y + i, sum);
  }
};

template <class T>
struct GatedBackward {
  const T* x;
  const T* gates;
  const T* grad_y;
  T* grad_x;
  T* grad_gates;
  std::int64_t columns;
};
// A block handles a row.
template <class T>
__global__ void __launch_bounds__(128) gated_backward_kernel(GatedBackward<T> a) {
  const std::int64_t begin = blockIdx.x * a.columns;
  const Sigmoid gate = sigmoid_of_negated<T>(-to_float(a.gates[blockIdx.x]));
  float dot = 0;
  for (std::int64_t i = begin + threadIdx.x; i < begin + a.columns; i += 128) {
    const float dy = to_float(a.grad_y[i]);
    dot += dy * to_float(a.x[i]);
    a.grad_x[i] = rounded<T>(gate.value * dy);
  }
  dot = reduce_block<128, Sum>(dot);
  if (threadIdx.x == 0) {
    a.grad_gates[blockIdx.x] = rounded<T>(dot * gate.value * gate.complement);
  }
}

}  // namespace

void sort_by_expert(const Access& access, Context&, const SortByExpertArgs& args) {
  const Queue& queue = queue_of(access);
  const Pairs pairs{data<std::int32_t>(access, args.experts), args.experts.numel(),
                    args.ends.dim(0)};
  auto* const ends = data<std::int64_t>(access, args.ends);
  const NoRows none{data<std::int32_t>(access, args.rows), data<std::int32_t>(access, args.pairs)};
  const dim3 blocks = blocks_of(pairs.all_experts);
  start(queue, blocks, sort_threads, count_kernel, pairs, ends);
  start(queue, blocks_of(1), 32, ends_kernel, pairs.all_experts, ends);
  elementwise<1>(queue, pairs.count, true, none);
  start(queue, blocks, sort_threads, place_kernel, pairs, static_cast<const std::int64_t*>(ends),
        none.rows, none.pairs);
}

void drop_pairs(const Access& access, Context&, const DropPairsArgs& args) {
  const Dropping a{.experts = data<std::int32_t>(access, args.experts),
                   .counts = data<std::int64_t>(access, args.counts),
                   .kept = data<std::int32_t>(access, args.kept),
                   .tokens = args.experts.dim(0),
                   .topk = args.experts.dim(1),
                   .all_experts = args.counts.dim(1),
                   .capacity = args.capacity,
                   .sequence = args.sequence,
                   .first_row = args.first_row};
  start(queue_of(access), blocks_of(args.counts.numel()), sort_threads, drop_kernel, a);
}

void gather_rows(const Access& access, Context&, const GatherRowsArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const Gather<T> f{data<T>(access, args.x), data<std::int32_t>(access, args.indices),
                      data<T>(access, args.y), args.divisor, args.x.dim(1)};
    elementwise<pack_size<T>>(queue_of(access), args.y.numel(),
                              aligned(f.x, f.y) && f.columns % pack_size<T> == 0, f);
  });
}

void sum_rows(const Access& access, Context&, const SumRowsArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const SumOfRows<T> f{data<T>(access, args.x), data<std::int32_t>(access, args.rows),
                         data<T>(access, args.y), args.rows.dim(1),
                         args.x.dim(1),           args.accumulate};
    elementwise<pack_size<T>>(queue_of(access), args.y.numel(),
                              aligned(f.x, f.y) && f.columns % pack_size<T> == 0, f);
  });
}

void expert_activation(const Access& access, Context&, const ExpertActivationArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    if (!args.unit.is_swiglu()) {
      const std::int64_t columns = args.y.dim(1);
      const GatedUnits<T> f{args.unit,
                            UnitColumns(args.unit, columns),
                            data<T>(access, args.x),
                            data<float>(access, args.weights),
                            data<T>(access, args.y),
                            columns};
      elementwise<1>(queue_of(access), args.y.numel(), true, f);
      return;
    }
    const Activation<T> f{data<T>(access, args.x), data<float>(access, args.weights),
                          data<T>(access, args.y), args.y.dim(1)};
    elementwise<pack_size<T>>(queue_of(access), args.y.numel(),
                              aligned(f.x, f.y) && f.columns % pack_size<T> == 0, f);
  });
}

void expert_activation_backward(const Access& access, Context&,
                                const ExpertActivationBackwardArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const ActivationBackward<T> a{data<T>(access, args.x),
                                  data<float>(access, args.weights),
                                  data<T>(access, args.grad_y),
                                  data<T>(access, args.grad_x),
                                  data<float>(access, args.grad_weights),
                                  data<T>(access, args.y),
                                  args.y.dim(1)};
    if (!args.unit.is_swiglu()) {
      start(queue_of(access), blocks_of(args.y.dim(0)), 128, gated_units_backward_kernel<T>,
            args.unit, UnitColumns(args.unit, a.columns), a);
      return;
    }
    start(queue_of(access), blocks_of(args.y.dim(0)), 128, activation_backward_kernel<T>, a);
  });
}

void gate_rows(const Access& access, Context&, const GateRowsArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const Gated<T> f{data<T>(access, args.x), data<T>(access, args.gates), data<T>(access, args.y),
                     args.x.dim(1)};
    elementwise<pack_size<T>>(queue_of(access), args.y.numel(),
                              aligned(f.x, f.y) && f.columns % pack_size<T> == 0, f);
  });
}

void gate_rows_backward(const Access& access, Context&, const GateRowsBackwardArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const GatedBackward<T> a{data<T>(access, args.x),          data<T>(access, args.gates),
                             data<T>(access, args.grad_y),     data<T>(access, args.grad_x),
                             data<T>(access, args.grad_gates), args.x.dim(1)};
    start(queue_of(access), blocks_of(args.x.dim(0)), 128, gated_backward_kernel<T>, a);
  });
}

}  // namespace trident::cuda
