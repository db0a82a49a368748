#include "kernels/cross_entropy.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.cuh"

namespace trident::cuda {
namespace {

constexpr int row_threads = 512;  // a block handles a row

template <bool Wide, class T, int N>
__device__ inline void load_pack(const T* from, float (&x)[N]) {
  if constexpr (Wide) {
    load(from, x);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = to_float(from[j]);
  }
}
template <bool Wide, class T, int N>
__device__ inline void store_pack(T* to, const float (&x)[N]) {
  if constexpr (Wide || N == 1) {
    store(to, x);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) to[j] = rounded<T>(x[j]);
  }
}

// Calls f(column, values) for packs of the row's first `valid` columns. The threads take packs in
// turn; several loads overlap. The remainder of less than a pack is handled element by element. A
// row that is not Wide is read by elements into the same packs, so a wider padding of the
// vocabulary changes no sum.
template <bool Wide, class T, class F>
__device__ inline void each_pack(T* row, std::int64_t valid, F f) {
  constexpr int N = pack_size<std::remove_const_t<T>>, at_once = 4;
  constexpr std::int64_t step = row_threads * N;
  const std::int64_t whole = valid / N * N;
  std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * N;
  for (; i + (at_once - 1) * step < whole; i += at_once * step) {
    float x[at_once][N];
#pragma unroll
    for (int k = 0; k < at_once; ++k) load_pack<Wide>(row + i + k * step, x[k]);
#pragma unroll
    for (int k = 0; k < at_once; ++k) f(i + k * step, x[k]);
  }
  for (; i < whole; i += step) {
    float x[N];
    load_pack<Wide>(row + i, x);
    f(i, x);
  }
  if (whole + threadIdx.x < valid) {
    float x[1];
    load(row + whole + threadIdx.x, x);
    f(whole + threadIdx.x, x);
  }
}

// The steps of each_pack() in [begin, end) of a row that is Wide. `fetch_pack` gets a pack from
// wherever it is. `begin` is a multiple of kept_step<T>, so each thread gets the packs that it gets
// without ranges.
template <class T>
inline constexpr std::int64_t kept_step = row_threads* pack_size<T>;
template <class T, class Fetch, class F>
__device__ inline void each_pack_in(std::int64_t begin, std::int64_t end, Fetch fetch_pack, F f) {
  constexpr int N = pack_size<T>, at_once = 4;
  std::int64_t i = begin + static_cast<std::int64_t>(threadIdx.x) * N;
  for (; i + (at_once - 1) * kept_step<T> < end; i += at_once * kept_step<T>) {
    Packed<N, T> x[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) x[k] = fetch_pack(i + k * kept_step<T>);
#pragma unroll
    for (int k = 0; k < at_once; ++k) f(i + k * kept_step<T>, x[k]);
  }
  for (; i < end; i += kept_step<T>) f(i, fetch_pack(i));
}
template <class T, class F>
__device__ inline void each_left(T* row, std::int64_t whole, std::int64_t valid, F f) {
  if (whole + threadIdx.x >= valid) return;
  float x[1];
  load(row + whole + threadIdx.x, x);
  f(whole + threadIdx.x, x);
}
// As each_pack(); keep(index, pack) stores the packs of the first `kept` elements.
template <class T, class Keep, class F>
__device__ inline void each_kept(T* row, std::int64_t kept, std::int64_t valid, Keep keep, F f) {
  constexpr int N = pack_size<T>;
  const std::int64_t whole = valid / N * N;
  const auto from_row = [row](std::int64_t i) { return fetch<N>(row + i); };
  each_pack_in<T>(0, kept, from_row, [&](std::int64_t i, const Packed<N, T>& pack) {
    keep(static_cast<int>(i / N), pack.words[0]);
    float x[N];
    unpack(pack, x);
    f(i, x);
  });
  each_pack_in<T>(kept, whole, from_row, [&](std::int64_t i, const Packed<N, T>& pack) {
    float x[N];
    unpack(pack, x);
    f(i, x);
  });
  each_left(row, whole, valid, f);
}
// The same packs once more, the first `kept` elements from `packs`.
template <class T, class F>
__device__ inline void each_again(T* row, const uint4* packs, std::int64_t kept, std::int64_t valid,
                                  F f) {
  constexpr int N = pack_size<T>;
  const std::int64_t whole = valid / N * N;
  const auto run = [&](std::int64_t i, const Packed<N, T>& pack) {
    float x[N];
    unpack(pack, x);
    f(i, x);
  };
  each_pack_in<T>(
      0, kept, [&](std::int64_t i) { return Packed<N, T>{{packs[i / N]}}; }, run);
  each_pack_in<T>(
      kept, whole, [&](std::int64_t i) { return fetch<N>(row + i); }, run);
  each_left(row, whole, valid, f);
}

// As precise as the logits need: a fast exponential for 16-bit logits.
template <class T>
__device__ inline float exponential(float x) {
  return sizeof(T) == 4 ? expf(x) : __expf(x);
}

// The label's column on this rank, or -1.
__device__ inline std::int64_t column_of(const CrossEntropyShape& shape, std::int32_t label) {
  const std::int64_t column = label - shape.begin;
  return column >= 0 && column < shape.valid ? column : -1;
}

template <class T>
__device__ inline void clear_row(T* row, std::int64_t columns) {
  for (std::int64_t i = threadIdx.x; i < columns; i += row_threads) row[i] = rounded<T>(0.0f);
}

template <bool Wide, class T>
__global__ void __launch_bounds__(row_threads)
    maximum_kernel(std::int64_t columns, std::int64_t valid, const T* logits, float* maximum) {
  float best = -INFINITY;
  each_pack<Wide>(logits + blockIdx.x * columns, valid, [&]<int M>(std::int64_t, float(&x)[M]) {
#pragma unroll
    for (int j = 0; j < M; ++j) best = fmaxf(best, x[j]);
  });
  best = reduce_block<row_threads, Maximum>(best);
  if (threadIdx.x == 0) maximum[blockIdx.x] = best;
}

template <bool Wide, class T>
__global__ void __launch_bounds__(row_threads)
    statistics_kernel(std::int64_t rows, std::int64_t columns, CrossEntropyShape shape,
                      const T* logits, const std::int32_t* labels, const float* maximum,
                      float* statistics) {
  const std::int64_t t = blockIdx.x;
  if (labels[t] < 0) {  // the same in all threads of the block
    if (threadIdx.x < 3) {
      statistics[threadIdx.x * rows + t] = threadIdx.x == 0 && shape.begin == 0 ? 1.0f : 0.0f;
    }
    return;
  }
  const T* const row = logits + t * columns;
  const float largest = maximum[t];
  float exponentials = 0, shifts = 0;
  each_pack<Wide>(row, shape.valid, [&]<int M>(std::int64_t, float(&x)[M]) {
#pragma unroll
    for (int j = 0; j < M; ++j) {
      exponentials += exponential<T>(x[j] - largest);
      shifts += x[j] - largest;
    }
  });
  exponentials = reduce_block<row_threads, Sum>(exponentials);
  shifts = reduce_block<row_threads, Sum>(shifts);
  if (threadIdx.x != 0) return;
  const std::int64_t target = column_of(shape, labels[t]);
  statistics[t] = exponentials;
  statistics[rows + t] = target < 0 ? 0.0f : to_float(row[target]) - largest;
  statistics[2 * rows + t] = shape.label_smoothing > 0 ? shifts : 0.0f;
}

struct Losses {
  const float* statistics;
  float* losses;
  std::int64_t rows;
  double smoothing, vocabulary;
  template <int N>
  __device__ void run(std::int64_t t) const {
    losses[t] = static_cast<float>(log(static_cast<double>(statistics[t])) -
                                   (1 - smoothing) * statistics[rows + t] -
                                   smoothing / vocabulary * statistics[2 * rows + t]);
  }
};

template <bool Wide, class T>
__global__ void __launch_bounds__(row_threads)
    gradient_kernel(std::int64_t columns, CrossEntropyShape shape, T* logits,
                    const std::int32_t* labels, const float* maximum, const float* statistics,
                    float scale) {
  const std::int64_t t = blockIdx.x;
  T* const row = logits + t * columns;
  if (labels[t] < 0) return clear_row(row, columns);
  const float largest = maximum[t], inverse = 1.0f / statistics[t];
  const float uniform = shape.label_smoothing / static_cast<float>(shape.vocabulary);
  const float at_target = 1 - shape.label_smoothing;
  const std::int64_t target = column_of(shape, labels[t]);
  each_pack<Wide>(row, shape.valid, [&]<int M>(std::int64_t i, float(&x)[M]) {
#pragma unroll
    for (int j = 0; j < M; ++j) {
      const float p = exponential<T>(x[j] - largest) * inverse;
      x[j] = scale * (p - (i + j == target ? at_target : 0.0f) - uniform);
    }
    store_pack<Wide>(row + i, x);
  });
  for (std::int64_t i = shape.valid + threadIdx.x; i < columns; i += row_threads) {
    row[i] = rounded<T>(0.0f);
  }
}

// The losses and, with Gradient, the gradient of rows of which this rank has all columns.
// The first pass keeps each thread's maximum and its sum of exponentials relative to that maximum
// (Milakov & Gimelshein 2018). The second pass finds the first `kept` elements of a Wide row in
// shared memory, and the others in the caches.
template <bool Wide, bool Gradient, class T>
__global__ void __launch_bounds__(row_threads, Wide&& Gradient ? 2 : 3)
    whole_kernel(std::int64_t columns, CrossEntropyShape shape, T* logits,
                 const std::int32_t* labels, float* losses, float scale, std::int64_t kept) {
  const std::int64_t t = blockIdx.x;
  T* const row = logits + t * columns;
  if (labels[t] < 0) {
    if (threadIdx.x == 0) losses[t] = 0;
    if constexpr (Gradient) clear_row(row, columns);
    return;
  }
  const std::int64_t target = column_of(shape, labels[t]);
  // Read before any thread can have changed it.
  const double target_logit = target < 0 ? 0.0 : static_cast<double>(to_float(row[target]));
  float best = -INFINITY, exponentials = 0, sum = 0;
  const auto add = [&]<int M>(std::int64_t, float(&x)[M]) {
    float most = best;
#pragma unroll
    for (int j = 0; j < M; ++j) most = fmaxf(most, x[j]);
    const float base = most == -INFINITY ? 0.0f : most;
    exponentials *= exponential<T>(best - base);
#pragma unroll
    for (int j = 0; j < M; ++j) {
      exponentials += exponential<T>(x[j] - base);
      sum += x[j];
    }
    best = most;
  };
  if constexpr (Wide && Gradient) {
    uint4* const packs = dynamic_shared();
    each_kept(
        row, kept, shape.valid, [packs](int pack, const uint4& x) { packs[pack] = x; }, add);
  } else {
    each_pack<Wide>(static_cast<const T*>(row), shape.valid, add);
  }
  const float largest = reduce_block<row_threads, Maximum>(best);
  if (best != largest) exponentials *= exponential<T>(best - largest);
  exponentials = reduce_block<row_threads, Sum>(exponentials);
  if (shape.label_smoothing > 0) sum = reduce_block<row_threads, Sum>(sum);
  if (threadIdx.x == 0) {
    const double smoothing = static_cast<double>(shape.label_smoothing);
    const double top = static_cast<double>(largest);
    double loss = log(static_cast<double>(exponentials)) -
                  (1 - smoothing) * (target < 0 ? 0.0 : target_logit - top);
    if (smoothing > 0) {
      loss -= smoothing * (static_cast<double>(sum) / static_cast<double>(shape.vocabulary) - top);
    }
    losses[t] = static_cast<float>(loss);
  }
  if constexpr (Gradient) {
    const float inverse = 1.0f / exponentials;
    const float uniform = shape.label_smoothing / static_cast<float>(shape.vocabulary);
    const float at_target = 1 - shape.label_smoothing;
    const auto differentiate = [&]<int M>(std::int64_t i, float(&x)[M]) {
#pragma unroll
      for (int j = 0; j < M; ++j) {
        const float p = exponential<T>(x[j] - largest) * inverse;
        x[j] = scale * (p - (i + j == target ? at_target : 0.0f) - uniform);
      }
      store_pack<Wide>(row + i, x);
    };
    if constexpr (Wide) {
      each_again(row, dynamic_shared(), kept, shape.valid, differentiate);
    } else {
      each_pack<Wide>(row, shape.valid, differentiate);
    }
    for (std::int64_t i = shape.valid + threadIdx.x; i < columns; i += row_threads) {
      row[i] = rounded<T>(0.0f);
    }
  }
}

// Calls f<T, Wide>. Wide means that the rows of the logits allow packs of 16 bytes.
template <class F>
void by_row(const Access& access, const Tensor& logits, const F& f) {
  by_dtype(logits.dtype(), [&]<class T>(T*) {
    T* const x = data<T>(access, logits);
    if (aligned(x) && logits.dim(1) % pack_size<T> == 0) {
      f.template operator()<T, true>(x);
    } else {
      f.template operator()<T, false>(x);
    }
  });
}

}  // namespace

void cross_entropy_maximum(const Access& access, Context&, const CrossEntropyShape& shape,
                           const Tensor& logits, const Tensor& maximum) {
  by_row(access, logits, [&]<class T, bool Wide>(const T* x) {
    start(queue_of(access), blocks_of(logits.dim(0)), row_threads, maximum_kernel<Wide, T>,
          logits.dim(1), shape.valid, x, data<float>(access, maximum));
  });
}

void cross_entropy_statistics(const Access& access, Context&, const CrossEntropyShape& shape,
                              const Tensor& logits, const Tensor& labels, const Tensor& maximum,
                              const Tensor& statistics) {
  by_row(access, logits, [&]<class T, bool Wide>(const T* x) {
    start(queue_of(access), blocks_of(logits.dim(0)), row_threads, statistics_kernel<Wide, T>,
          logits.dim(0), logits.dim(1), shape, x, data<std::int32_t>(access, labels),
          data<float>(access, maximum), data<float>(access, statistics));
  });
}

void cross_entropy_losses(const Access& access, Context&, const CrossEntropyShape& shape,
                          const Tensor& statistics, const Tensor& losses) {
  elementwise<1>(queue_of(access), losses.dim(0), true,
                 Losses{.statistics = data<float>(access, statistics),
                        .losses = data<float>(access, losses),
                        .rows = losses.dim(0),
                        .smoothing = shape.label_smoothing,
                        .vocabulary = static_cast<double>(shape.vocabulary)});
}

void cross_entropy_gradient(const Access& access, Context&, const CrossEntropyShape& shape,
                            const Tensor& logits, const Tensor& labels, const Tensor& maximum,
                            const Tensor& statistics, float scale) {
  by_row(access, logits, [&]<class T, bool Wide>(T* x) {
    start(queue_of(access), blocks_of(logits.dim(0)), row_threads, gradient_kernel<Wide, T>,
          logits.dim(1), shape, x, data<std::int32_t>(access, labels), data<float>(access, maximum),
          data<float>(access, statistics), scale);
  });
}

void cross_entropy(const Access& access, Context&, const CrossEntropyShape& shape,
                   const Tensor& logits, const Tensor& labels, const Tensor& losses,
                   std::optional<float> gradient_scale) {
  by_row(access, logits, [&]<class T, bool Wide>(T* x) {
    const std::int64_t rows = logits.dim(0), columns = logits.dim(1);
    const auto* const label = data<std::int32_t>(access, labels);
    auto* const loss = data<float>(access, losses);
    if (!gradient_scale) {
      start(queue_of(access), blocks_of(rows), row_threads, whole_kernel<Wide, false, T>, columns,
            shape, x, label, loss, 0.0f, std::int64_t{0});
      return;
    }
    // Two blocks run on a multiprocessor at once, and the second pass finds what their shared
    // memory doesn't hold in the L2 cache.
    constexpr auto element = static_cast<std::int64_t>(sizeof(T));
    const std::int64_t bytes = Wide ? shared_bytes_each(2) : 0, most = bytes / element;
    const std::int64_t whole = shape.valid / pack_size<T> * pack_size<T>;
    const std::int64_t kept = whole <= most ? whole : most / kept_step<T> * kept_step<T>;
    start_with_shared(queue_of(access), kept * element, bytes, blocks_of(rows), row_threads,
                      whole_kernel<Wide, true, T>, columns, shape, x, label, loss, *gradient_scale,
                      kept);
  });
}

}  // namespace trident::cuda
