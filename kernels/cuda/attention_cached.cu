#include <cmath>
#include <string>

#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/state.h"

namespace trident::cuda {
namespace {

constexpr int most_head_dim = 2048;

// Elements are counted over the keys and values of the new positions.
template <class T>
struct Append {
  const T* qkv;
  T* cache;
  std::int64_t pairs, row, skipped, sequence, begin, positions;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t t = i / pairs, column = i % pairs;
    const std::int64_t to = (t / sequence * positions + begin + t % sequence) * pairs + column;
    cache[to] = qkv[t * row + skipped + column];
  }
};

template <class T>
struct Attend {
  const T *qkv, *cache;
  T* out;
  std::int64_t sequence, begin, positions;
  int heads, groups, head_dim, row;  // row: elements in a row of qkv
};

// A block handles one query head. Each step takes as many keys as there are threads, with an online
// softmax.
template <int Threads, class T>
__global__ void __launch_bounds__(Threads) attend_kernel(Attend<T> a) {
  __shared__ float query[most_head_dim], total[most_head_dim], weights[Threads];
  const std::int64_t t = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y), d = a.head_dim, pairs = 2 * a.groups * d;
  const int thread = static_cast<int>(threadIdx.x);
  const T* const keys =
      a.cache + t / a.sequence * a.positions * pairs + head / (a.heads / a.groups) * d;
  const T* const values = keys + a.groups * d;
  const float scale = 1.0f / sqrtf(static_cast<float>(d));
  for (int i = thread; i < d; i += Threads) {
    query[i] = to_float(a.qkv[t * a.row + head * d + i]) * scale;
    total[i] = 0;
  }
  float maximum = -INFINITY, sum = 0;
  const std::int64_t count = a.begin + t % a.sequence + 1;
  for (std::int64_t first = 0; first < count; first += Threads) {
    __syncthreads();
    const int here = static_cast<int>(count - first < Threads ? count - first : Threads);
    float score = -INFINITY;
    if (thread < here) {
      const T* const key = keys + (first + thread) * pairs;
      score = 0;
      for (int i = 0; i < d; ++i) score = fmaf(query[i], to_float(key[i]), score);
    }
    const float now = fmaxf(maximum, reduce_block<Threads, Maximum>(score));
    const float weight = thread < here ? expf(score - now) : 0.0f;
    weights[thread] = weight;
    const float kept = maximum == -INFINITY ? 0.0f : expf(maximum - now);
    sum = sum * kept + reduce_block<Threads, Sum>(weight);
    maximum = now;
    __syncthreads();
    for (int i = thread; i < d; i += Threads) {
      float x = total[i] * kept;
      for (int k = 0; k < here; ++k) {
        x = fmaf(weights[k], to_float(values[(first + k) * pairs + i]), x);
      }
      total[i] = x;
    }
  }
  for (int i = thread; i < d; i += Threads) {
    a.out[(t * a.heads + head) * d + i] = rounded<T>(total[i] / sum);
  }
}

}  // namespace

void append_to_cache(const Access& access, Context&, const CacheArgs& args) {
  const AttentionShape& shape = args.shape;
  const std::int64_t pairs = 2 * shape.groups * shape.head_dim;
  by_dtype(args.qkv.dtype(), [&]<class T>(T*) {
    elementwise<1>(queue_of(access), shape.batch * shape.sequence * pairs, false,
                   Append<T>{.qkv = data<T>(access, args.qkv),
                             .cache = data<T>(access, args.cache),
                             .pairs = pairs,
                             .row = shape.row(),
                             .skipped = shape.heads * shape.head_dim,
                             .sequence = shape.sequence,
                             .begin = args.begin,
                             .positions = args.cache.dim(1)});
  });
}

void attention_cached(const Access& access, Context&, const CacheArgs& args, const Tensor& out) {
  const AttentionShape& shape = args.shape;
  if (shape.head_dim > most_head_dim) {
    throw Error("attention_cached: got head_dim " + std::to_string(shape.head_dim) +
                ", need at most " + std::to_string(most_head_dim));
  }
  by_dtype(args.qkv.dtype(), [&]<class T>(T*) {
    const Attend<T> a{.qkv = data<T>(access, args.qkv),
                      .cache = data<T>(access, args.cache),
                      .out = data<T>(access, out),
                      .sequence = shape.sequence,
                      .begin = args.begin,
                      .positions = args.cache.dim(1),
                      .heads = static_cast<int>(shape.heads),
                      .groups = static_cast<int>(shape.groups),
                      .head_dim = static_cast<int>(shape.head_dim),
                      .row = static_cast<int>(shape.row())};
    start(queue_of(access), blocks_of(shape.batch * shape.sequence, shape.heads), 128,
          attend_kernel<128, T>, a);
  });
}

}  // namespace trident::cuda
