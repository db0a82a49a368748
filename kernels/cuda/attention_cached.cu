#include <algorithm>
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
  const T *key, *value;
  T* cache;
  std::int64_t key_row, value_row, keys, pairs;      // keys, pairs: elements of a row of the cache
  std::int64_t sequence, skipped, begin, positions;  // begin: the slot of a sample's row 0
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t t = i / pairs, column = i % pairs;
    if (t % sequence < skipped) return;
    const std::int64_t to = (t / sequence * positions + begin + t % sequence) * pairs + column;
    cache[to] = column < keys ? key[t * key_row + column] : value[t * value_row + column - keys];
  }
};

template <class T>
struct Attend {
  const T *query, *cache, *sinks;
  T* out;
  std::int64_t query_row, sequence, begin, positions, window;
  int heads, groups, head_dim, value_dim;
  float scale;  // of the scores
};

// A block handles one query head. Each step takes as many keys as there are threads, with an online
// softmax.
template <int Threads, class T>
__global__ void __launch_bounds__(Threads) attend_kernel(Attend<T> a) {
  __shared__ float query[most_head_dim], total[most_head_dim], weights[Threads];
  const std::int64_t t = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y), group = head / (a.heads / a.groups);
  const int d = a.head_dim, e = a.value_dim, pairs = a.groups * (d + e);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t end = a.begin + t % a.sequence + 1;
  const std::int64_t skipped = a.window > 0 && end > a.window ? end - a.window : 0;
  const std::int64_t count = end - skipped;
  const T* const cached = a.cache + (t / a.sequence * a.positions + skipped) * pairs;
  const T *const keys = cached + group * d, *const values = cached + a.groups * d + group * e;
  for (int i = thread; i < d; i += Threads) {
    query[i] = to_float(a.query[t * a.query_row + head * d + i]) * a.scale;
  }
  for (int i = thread; i < e; i += Threads) total[i] = 0;
  float maximum = a.sinks != nullptr ? to_float(a.sinks[head]) : -INFINITY;
  float sum = a.sinks != nullptr ? 1.0f : 0.0f;
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
    for (int i = thread; i < e; i += Threads) {
      float x = total[i] * kept;
      for (int k = 0; k < here; ++k) {
        x = fmaf(weights[k], to_float(values[(first + k) * pairs + i]), x);
      }
      total[i] = x;
    }
  }
  for (int i = thread; i < e; i += Threads) {
    a.out[(t * a.heads + head) * e + i] = rounded<T>(total[i] / sum);
  }
}

}  // namespace

void append_to_cache(const Access& access, Context&, const CacheArgs& args) {
  const AttentionShape& shape = args.shape;
  const HeadColumns &key = args.in.key, &value = args.in.value;
  const std::int64_t pairs = args.cache.dim(2);
  by_dtype(args.cache.dtype(), [&]<class T>(T*) {
    elementwise<1>(queue_of(access), shape.batch * shape.sequence * pairs, false,
                   Append<T>{.key = data<T>(access, key.rows) + key.begin,
                             .value = data<T>(access, value.rows) + value.begin,
                             .cache = data<T>(access, args.cache),
                             .key_row = key.rows.dim(1),
                             .value_row = value.rows.dim(1),
                             .keys = shape.groups * shape.head_dim,
                             .pairs = pairs,
                             .sequence = shape.sequence,
                             .skipped = args.skipped,
                             .begin = args.begin - args.cache_begin,
                             .positions = args.cache.dim(1)});
  });
}

void attention_cached(const Access& access, Context&, const CacheArgs& args, const Tensor& out) {
  const AttentionShape& shape = args.shape;
  const std::int64_t widest = std::max(shape.head_dim, shape.value_dim());
  if (widest > most_head_dim) {
    throw Error("attention_cached: got head_dim " + std::to_string(widest) + ", need at most " +
                std::to_string(most_head_dim));
  }
  const HeadColumns& query = args.in.query;
  by_dtype(out.dtype(), [&]<class T>(T*) {
    const Attend<T> a{.query = data<T>(access, query.rows) + query.begin,
                      .cache = data<T>(access, args.cache),
                      .sinks = args.sinks ? data<T>(access, args.sinks) : nullptr,
                      .out = data<T>(access, out),
                      .query_row = query.rows.dim(1),
                      .sequence = shape.sequence,
                      .begin = args.begin - args.cache_begin,
                      .positions = args.cache.dim(1),
                      .window = args.window,
                      .heads = static_cast<int>(shape.heads),
                      .groups = static_cast<int>(shape.groups),
                      .head_dim = static_cast<int>(shape.head_dim),
                      .value_dim = static_cast<int>(shape.value_dim()),
                      .scale = shape.score_scale()};
    start(queue_of(access), blocks_of(shape.batch * shape.sequence, shape.heads), 128,
          attend_kernel<128, T>, a);
  });
}

}  // namespace trident::cuda
