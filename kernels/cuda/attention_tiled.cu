#include "kernels/cuda/attention_tiled.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/random.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/state.h"

namespace trident::cuda {
namespace {

// Letters: S query and K key positions, A query heads in G groups, D elements of a query or key
// head, E of a value head. A tile is Rows positions of one head. Side x Side threads share the
// Rows x Rows products of two tiles: thread (y, x) has rows y + Side·i and columns x + Side·j.

__device__ inline std::int64_t greater_of(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}
__device__ inline std::int64_t lesser_of(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// The heads of one operand: those of a sample's position lie in a row, `dim` elements each.
template <class T>
struct Heads {
  T* data;
  std::int64_t row, positions, dim;
  __device__ T* of(std::int64_t sample, std::int64_t head) const {
    return data + sample * positions * row + head * dim;
  }
};

template <class T>
struct Shape {
  std::int64_t sequence, keys, heads, groups, head_dim, value_dim, head_offset;
  std::int64_t query_begin, key_begin, window, dropout_positions;
  float scale;
  Heads<const T> q, k, v;
  const std::int64_t* document_begins;  // (B, S), or null
  const T* sinks;                       // (A), or null
  const std::int64_t* samples;
  Dropout dropout;
  bool bare;  // a query may see no key of a tile, or none at all

  __device__ std::int64_t group_of(std::int64_t head) const { return head / (heads / groups); }
  // A query sees the keys first_key … end_key - 1. Neither bound decreases with the query.
  __device__ std::int64_t first_key(std::int64_t sample, std::int64_t query) const {
    std::int64_t first = 0;
    if (window > 0) first = greater_of(first, query + query_begin - key_begin - window + 1);
    if (document_begins != nullptr && query < sequence) {
      first = greater_of(first, document_begins[sample * sequence + query] - key_begin);
    }
    return first;
  }
  __device__ std::int64_t end_key(std::int64_t query) const {
    return lesser_of(query + query_begin - key_begin + 1, keys);
  }
  __device__ bool sees(std::int64_t sample, std::int64_t query, std::int64_t key) const {
    return key < end_key(query) && key >= first_key(sample, query);
  }
  // The dropout factor of a probability: 0, or the scale of a kept one.
  __device__ float kept(std::int64_t sample, std::int64_t head, std::int64_t query,
                        std::int64_t key) const {
    float factor[1];
    const std::int64_t row = (head_offset + head) * dropout_positions + query_begin + query;
    dropout.factors(static_cast<std::uint64_t>(samples[sample]),
                    static_cast<std::uint64_t>(row * dropout_positions + key_begin + key), factor);
    return factor[0];
  }
};

template <int Rows>
inline constexpr int side = Rows < 16 ? 8 : 16;
template <int Rows>
inline constexpr int tile_threads = side<Rows>* side<Rows>;

// Loads positions begin … begin + Rows of a head, with zeros beyond the positions and elements that
// there are.
template <int D, int Rows, class T>
__device__ inline void load_tile(float (&tile)[Rows][D + 1], const T* from, std::int64_t stride,
                                 std::int64_t begin, std::int64_t positions,
                                 std::int64_t head_dim) {
  for (int i = threadIdx.x; i < Rows * D; i += tile_threads<Rows>) {
    const int r = i / D, d = i % D;
    const std::int64_t position = begin + r;
    tile[r][d] =
        position < positions && d < head_dim ? to_float(from[position * stride + d]) : 0.0f;
  }
}

// products[i][j] += the dot products of rows of a and b.
template <int D, int Rows, int Per>
__device__ inline void add_products(const float (&a)[Rows][D + 1], const float (&b)[Rows][D + 1],
                                    std::int64_t head_dim, float (&products)[Per][Per]) {
  constexpr int S = side<Rows>;
  const int x = threadIdx.x % S, y = threadIdx.x / S;
  const int end = static_cast<int>(head_dim);
#pragma unroll 4
  for (int d = 0; d < end; ++d) {
    float u[Per], v[Per];
#pragma unroll
    for (int i = 0; i < Per; ++i) {
      u[i] = a[y + S * i][d];
      v[i] = b[x + S * i][d];
    }
#pragma unroll
    for (int i = 0; i < Per; ++i) {
#pragma unroll
      for (int j = 0; j < Per; ++j) products[i][j] = fmaf(u[i], v[j], products[i][j]);
    }
  }
}

// sums[i][c] += the sum over r of weights[y + S·i][r] · rows[r][x + S·c]. `Across` reads the
// columns of `weights` instead: weights[r][y + S·i].
template <bool Across, int D, int Rows, int Per, int Columns>
__device__ inline void add_rows(const float (&weights)[Rows][Rows + 1],
                                const float (&rows)[Rows][D + 1], std::int64_t head_dim,
                                float (&sums)[Per][Columns]) {
  constexpr int S = side<Rows>;
  const int x = threadIdx.x % S, y = threadIdx.x / S;
  for (int r = 0; r < Rows; ++r) {
    float w[Per];
#pragma unroll
    for (int i = 0; i < Per; ++i) w[i] = Across ? weights[r][y + S * i] : weights[y + S * i][r];
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      if (S * c >= head_dim) break;
      const float v = rows[r][x + S * c];
#pragma unroll
      for (int i = 0; i < Per; ++i) sums[i][c] = fmaf(w[i], v, sums[i][c]);
    }
  }
}

template <class Op, int Rows>
__device__ inline float reduce_side(float x) {
#pragma unroll
  for (int step = side<Rows> / 2; step > 0; step /= 2) {
    x = Op::of(x, __shfl_xor_sync(0xffffffffu, x, step));
  }
  return x;
}

template <int D, int Rows, int Per, int Columns, class T>
__device__ inline void store_rows(T* to, std::int64_t stride, std::int64_t begin,
                                  std::int64_t positions, std::int64_t head_dim,
                                  const float (&values)[Per][Columns], const float (&factor)[Per]) {
  constexpr int S = side<Rows>;
  const int x = threadIdx.x % S, y = threadIdx.x / S;
#pragma unroll
  for (int i = 0; i < Per; ++i) {
    const std::int64_t position = begin + y + S * i;
    if (position >= positions) continue;
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      const int d = x + S * c;
      if (d < head_dim) to[position * stride + d] = rounded<T>(values[i][c] * factor[i]);
    }
  }
}

// A block handles one tile of queries of one head of one sample. It loops over the tiles of keys
// and updates the softmax online (Dao 2022).
template <int D, int Rows, class T>
__global__ void __launch_bounds__(tile_threads<Rows>, 2)
    forward_kernel(Shape<T> shape, Heads<T> out, float* log_sum_exp) {
  constexpr int S = side<Rows>, per = Rows / S, columns = D / S;
  __shared__ float queries[Rows][D + 1], keys[Rows][D + 1], weights[Rows][Rows + 1];
  const int x = threadIdx.x % S, y = threadIdx.x / S;
  const std::int64_t head = blockIdx.y, sample = blockIdx.z, group = shape.group_of(head);
  // The longest rows come first, so that the last blocks to start are short.
  const std::int64_t q0 = static_cast<std::int64_t>(gridDim.x - 1 - blockIdx.x) * Rows;
  load_tile<D, Rows>(queries, shape.q.of(sample, head), shape.q.row, q0, shape.sequence,
                     shape.head_dim);
  float output[per][columns] = {}, largest[per], total[per];
#pragma unroll
  for (int i = 0; i < per; ++i) {
    largest[i] = shape.bare ? -FLT_MAX : -INFINITY;
    total[i] = 0;
  }
  const std::int64_t end = shape.end_key(lesser_of(q0 + Rows, shape.sequence) - 1);
  for (std::int64_t k0 = shape.first_key(sample, q0) / Rows * Rows; k0 < end; k0 += Rows) {
    __syncthreads();
    load_tile<D, Rows>(keys, shape.k.of(sample, group), shape.k.row, k0, shape.keys,
                       shape.head_dim);
    __syncthreads();
    float s[per][per] = {};
    add_products<D, Rows>(queries, keys, shape.head_dim, s);
#pragma unroll
    for (int i = 0; i < per; ++i) {
      const std::int64_t q = q0 + y + S * i;
      float best = shape.bare ? -FLT_MAX : -INFINITY;
#pragma unroll
      for (int j = 0; j < per; ++j) {
        const std::int64_t k = k0 + x + S * j;
        s[i][j] = shape.sees(sample, q, k) ? s[i][j] * shape.scale : -INFINITY;
        best = fmaxf(best, s[i][j]);
      }
      best = fmaxf(largest[i], reduce_side<Maximum, Rows>(best));
      const float shrink = expf(largest[i] - best);
      largest[i] = best;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < per; ++j) {
        float p = expf(s[i][j] - best);
        sum += p;
        const std::int64_t k = k0 + x + S * j;
        if (shape.dropout.threshold != 0 && p > 0) p *= shape.kept(sample, head, q, k);
        weights[y + S * i][x + S * j] = p;
      }
      total[i] = total[i] * shrink + reduce_side<Sum, Rows>(sum);
#pragma unroll
      for (int c = 0; c < columns; ++c) output[i][c] *= shrink;
    }
    __syncthreads();
    load_tile<D, Rows>(keys, shape.v.of(sample, group), shape.v.row, k0, shape.keys,
                       shape.value_dim);
    __syncthreads();
    add_rows<false, D, Rows>(weights, keys, shape.value_dim, output);
  }
  float inverse[per];
#pragma unroll
  for (int i = 0; i < per; ++i) {
    float kept = 1;
    if (shape.sinks != nullptr) {
      const float sink = to_float(shape.sinks[head]), top = fmaxf(sink, largest[i]);
      kept = expf(largest[i] - top);
      total[i] = total[i] * kept + expf(sink - top);
      largest[i] = top;
    }
    inverse[i] = total[i] == 0 ? 0.0f : kept / total[i];
    if (total[i] == 0) {  // the query saw no key
#pragma unroll
      for (int c = 0; c < columns; ++c) output[i][c] = 0;
    }
    const std::int64_t q = q0 + y + S * i;
    if (x == 0 && q < shape.sequence) {
      log_sum_exp[(sample * shape.heads + head) * shape.sequence + q] = largest[i] + logf(total[i]);
    }
  }
  store_rows<D, Rows>(out.of(sample, head), out.row, q0, shape.sequence, shape.value_dim, output,
                      inverse);
}

// delta (B, A, S): the dot product of grad_out and out for each query. A warp handles a query.
template <class T>
__global__ void __launch_bounds__(128)
    delta_kernel(Shape<T> shape, std::int64_t rows, Heads<const T> out, Heads<const T> grad_out,
                 float* delta) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * 4 + threadIdx.x / 32;
  if (at >= rows) return;
  const std::int64_t q = at % shape.sequence, head = at / shape.sequence % shape.heads,
                     sample = at / shape.sequence / shape.heads;
  const T *const y = out.of(sample, head) + q * out.row, *const grad_y = grad_out.of(sample, head) +
                                                                         q * grad_out.row;
  float sum = 0;
  for (std::int64_t d = threadIdx.x % 32; d < shape.value_dim; d += 32) {
    sum = fmaf(to_float(y[d]), to_float(grad_y[d]), sum);
  }
  sum = reduce_warp<Sum>(sum);
  if (threadIdx.x % 32 == 0) delta[at] = sum;
}

// grad_sinks[head] -= the sum over queries of exp(sink - log_sum_exp) · delta: the sink's
// probability weighs no value. A block handles a head.
template <class T>
__global__ void __launch_bounds__(256)
    sink_gradient_kernel(Shape<T> shape, std::int64_t rows, const float* log_sum_exp,
                         const float* delta, float* grad_sinks) {
  const std::int64_t head = blockIdx.x;
  const float sink = to_float(shape.sinks[head]);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < rows; i += 256) {
    const std::int64_t at =
        (i / shape.sequence * shape.heads + head) * shape.sequence + i % shape.sequence;
    sum = fmaf(expf(sink - log_sum_exp[at]), delta[at], sum);
  }
  sum = reduce_block<256, Sum>(sum);
  if (threadIdx.x == 0) grad_sinks[head] -= sum;
}

template <class T>
struct Gradients {
  Heads<const T> out;
  const float *log_sum_exp, *delta;
  Heads<T> q, k, v;
};

// For one tile of queries and one of keys: the probabilities that weigh the values (dropout
// applied), and the gradients of the products.
template <int D, int Rows, class T>
__device__ inline void weigh(const Shape<T>& shape, const Gradients<T>& a, std::int64_t sample,
                             std::int64_t head, std::int64_t q0, std::int64_t k0,
                             const float (&queries)[Rows][D + 1], const float (&keys)[Rows][D + 1],
                             const float (&values)[Rows][D + 1], const float (&grads)[Rows][D + 1],
                             float (*weights)[Rows + 1], float (*products)[Rows + 1]) {
  constexpr int S = side<Rows>, per = Rows / S;
  const int x = threadIdx.x % S, y = threadIdx.x / S;
  float s[per][per] = {}, dp[per][per] = {};
  add_products<D, Rows>(queries, keys, shape.head_dim, s);
  add_products<D, Rows>(grads, values, shape.value_dim, dp);
#pragma unroll
  for (int i = 0; i < per; ++i) {
    const std::int64_t q = q0 + y + S * i;
    const std::int64_t at = (sample * shape.heads + head) * shape.sequence + q;
    const bool real = q < shape.sequence;
    const float log_sum = real ? a.log_sum_exp[at] : 0.0f, delta = real ? a.delta[at] : 0.0f;
#pragma unroll
    for (int j = 0; j < per; ++j) {
      const std::int64_t k = k0 + x + S * j;
      const bool seen = real && shape.sees(sample, q, k);
      const float p = seen ? expf(s[i][j] * shape.scale - log_sum) : 0.0f;
      const float kept = seen && shape.dropout.threshold != 0 ? shape.kept(sample, head, q, k) : 1;
      if (weights) weights[y + S * i][x + S * j] = p * kept;
      products[y + S * i][x + S * j] = p * (dp[i][j] * kept - delta);
    }
  }
}

// A block handles one tile of keys of one group. It loops over all queries of the group's heads.
template <int D, int Rows, class T>
__global__ void __launch_bounds__(tile_threads<Rows>, 2)
    backward_keys_kernel(Shape<T> shape, Gradients<T> a) {
  constexpr int S = side<Rows>, per = Rows / S, columns = D / S;
  __shared__ float queries[Rows][D + 1], keys[Rows][D + 1], values[Rows][D + 1], grads[Rows][D + 1],
      weights[Rows][Rows + 1], products[Rows][Rows + 1];
  const std::int64_t group = blockIdx.y, sample = blockIdx.z;
  const std::int64_t k0 = static_cast<std::int64_t>(blockIdx.x) * Rows;
  load_tile<D, Rows>(keys, shape.k.of(sample, group), shape.k.row, k0, shape.keys, shape.head_dim);
  load_tile<D, Rows>(values, shape.v.of(sample, group), shape.v.row, k0, shape.keys,
                     shape.value_dim);
  float grad_key[per][columns] = {}, grad_value[per][columns] = {};
  const std::int64_t in_group = shape.heads / shape.groups;
  const std::int64_t first_query = k0 + shape.key_begin - shape.query_begin;
  for (std::int64_t head = group * in_group; head < (group + 1) * in_group; ++head) {
    for (std::int64_t q0 = greater_of(0, first_query) / Rows * Rows; q0 < shape.sequence;
         q0 += Rows) {
      if (shape.first_key(sample, q0) >= k0 + Rows) break;  // nor do later queries see these keys
      __syncthreads();
      load_tile<D, Rows>(queries, shape.q.of(sample, head), shape.q.row, q0, shape.sequence,
                         shape.head_dim);
      load_tile<D, Rows>(grads, a.out.of(sample, head), a.out.row, q0, shape.sequence,
                         shape.value_dim);
      __syncthreads();
      weigh<D, Rows>(shape, a, sample, head, q0, k0, queries, keys, values, grads, weights,
                     products);
      __syncthreads();
      add_rows<true, D, Rows>(weights, grads, shape.value_dim, grad_value);
      add_rows<true, D, Rows>(products, queries, shape.head_dim, grad_key);
    }
  }
  float one[per], scale[per];
#pragma unroll
  for (int i = 0; i < per; ++i) {
    one[i] = 1;
    scale[i] = shape.scale;
  }
  store_rows<D, Rows>(a.k.of(sample, group), a.k.row, k0, shape.keys, shape.head_dim, grad_key,
                      scale);
  store_rows<D, Rows>(a.v.of(sample, group), a.v.row, k0, shape.keys, shape.value_dim, grad_value,
                      one);
}

// A block handles one tile of queries of one head. It loops over the keys.
template <int D, int Rows, class T>
__global__ void __launch_bounds__(tile_threads<Rows>, 2)
    backward_queries_kernel(Shape<T> shape, Gradients<T> a) {
  constexpr int S = side<Rows>, per = Rows / S, columns = D / S;
  __shared__ float queries[Rows][D + 1], keys[Rows][D + 1], values[Rows][D + 1], grads[Rows][D + 1],
      products[Rows][Rows + 1];
  const std::int64_t head = blockIdx.y, sample = blockIdx.z, group = shape.group_of(head);
  const std::int64_t q0 = static_cast<std::int64_t>(gridDim.x - 1 - blockIdx.x) * Rows;
  load_tile<D, Rows>(queries, shape.q.of(sample, head), shape.q.row, q0, shape.sequence,
                     shape.head_dim);
  load_tile<D, Rows>(grads, a.out.of(sample, head), a.out.row, q0, shape.sequence, shape.value_dim);
  float grad_query[per][columns] = {};
  const std::int64_t end = shape.end_key(lesser_of(q0 + Rows, shape.sequence) - 1);
  for (std::int64_t k0 = shape.first_key(sample, q0) / Rows * Rows; k0 < end; k0 += Rows) {
    __syncthreads();
    load_tile<D, Rows>(keys, shape.k.of(sample, group), shape.k.row, k0, shape.keys,
                       shape.head_dim);
    load_tile<D, Rows>(values, shape.v.of(sample, group), shape.v.row, k0, shape.keys,
                       shape.value_dim);
    __syncthreads();
    weigh<D, Rows>(shape, a, sample, head, q0, k0, queries, keys, values, grads,
                   static_cast<float(*)[Rows + 1]>(nullptr), products);
    __syncthreads();
    add_rows<false, D, Rows>(products, keys, shape.head_dim, grad_query);
  }
  float scale[per];
#pragma unroll
  for (int i = 0; i < per; ++i) scale[i] = shape.scale;
  store_rows<D, Rows>(a.q.of(sample, head), a.q.row, q0, shape.sequence, shape.head_dim, grad_query,
                      scale);
}

// The heads of `dim` elements that `x` has at `positions` of each sample.
template <class T>
Heads<T> heads_of(const Access& access, const HeadColumns& x, std::int64_t positions,
                  std::int64_t dim) {
  return {data<std::remove_const_t<T>>(access, x.rows) + x.begin, x.rows.dim(1), positions, dim};
}

template <class T>
Shape<T> shape_of(const Access& access, const AttentionArgs& args) {
  const AttentionShape& s = args.shape;
  const AttentionMask& mask = args.mask;
  return {.sequence = s.sequence,
          .keys = s.keys(),
          .heads = s.heads,
          .groups = s.groups,
          .head_dim = s.head_dim,
          .value_dim = s.value_dim(),
          .head_offset = args.head_offset,
          .query_begin = mask.query_begin,
          .key_begin = mask.key_begin,
          .window = mask.window,
          .dropout_positions = args.dropout_positions > 0 ? args.dropout_positions : s.keys(),
          .scale = static_cast<float>(s.score_factor / std::sqrt(static_cast<double>(s.head_dim))),
          .q = heads_of<const T>(access, args.in.query, s.sequence, s.head_dim),
          .k = heads_of<const T>(access, args.in.key, s.keys(), s.head_dim),
          .v = heads_of<const T>(access, args.in.value, s.keys(), s.value_dim()),
          .document_begins =
              mask.document_begins ? data<std::int64_t>(access, mask.document_begins) : nullptr,
          .sinks = args.sinks ? data<T>(access, args.sinks) : nullptr,
          .samples = data<std::int64_t>(access, args.dropout.samples),
          .dropout = args.dropout.probability > 0 ? dropout_of(args.dropout) : Dropout{},
          .bare = mask.offset() != 0 || mask.window > 0 || mask.document_begins || args.sinks};
}

dim3 tiles(std::int64_t positions, int rows, std::int64_t heads, std::int64_t samples) {
  return dim3(static_cast<unsigned>(ceil_div(positions, rows)), static_cast<unsigned>(heads),
              static_cast<unsigned>(samples));
}

// Calls f<D> with the smallest D that holds both head sizes. Throws Error above tiled_head_dim.
template <class F>
void by_head_dim(const AttentionShape& shape, const F& f) {
  const std::int64_t widest = std::max(shape.head_dim, shape.value_dim());
  if (widest <= 64) return f.template operator()<64>();
  if (widest <= 128) return f.template operator()<128>();
  if (widest <= tiled_head_dim) return f.template operator()<256>();
  throw Error("attention on cuda: got a head dimension of " + std::to_string(widest) +
              ", need at most " + std::to_string(tiled_head_dim));
}

}  // namespace

void tiled_attention_forward(const Access& access, Context&, const AttentionArgs& args) {
  const AttentionShape& s = args.shape;
  const Queue& queue = queue_of(access);
  by_dtype(args.out.dtype(), [&]<class T>(T*) {
    const Shape<T> shape = shape_of<T>(access, args);
    by_head_dim(s, [&]<int D>() {
      constexpr int rows = D <= 128 ? 32 : 16;
      start(queue, tiles(s.sequence, rows, s.heads, s.batch), tile_threads<rows>,
            forward_kernel<D, rows, T>, shape,
            heads_of<T>(access, {args.out}, s.sequence, s.value_dim()),
            data<float>(access, args.log_sum_exp));
    });
  });
}

void tiled_attention_backward(const Access& access, Context& context,
                              const AttentionBackwardArgs& args) {
  const AttentionArgs& forward = args.forward;
  const AttentionShape& s = forward.shape;
  const Queue& queue = queue_of(access);
  const std::int64_t queries = attention_deltas(s), e = s.value_dim();
  float* const delta = state_of(context).scratch<float>(access, context, queries);
  by_dtype(forward.out.dtype(), [&]<class T>(T*) {
    const Shape<T> shape = shape_of<T>(access, forward);
    const Gradients<T> a{.out = heads_of<const T>(access, {args.grad_out}, s.sequence, e),
                         .log_sum_exp = data<float>(access, forward.log_sum_exp),
                         .delta = delta,
                         .q = heads_of<T>(access, args.grad.query, s.sequence, s.head_dim),
                         .k = heads_of<T>(access, args.grad.key, s.keys(), s.head_dim),
                         .v = heads_of<T>(access, args.grad.value, s.keys(), e)};
    start(queue, blocks_of(ceil_div(queries, 4)), 128, delta_kernel<T>, shape, queries,
          heads_of<const T>(access, {forward.out}, s.sequence, e), a.out, delta);
    if (forward.sinks) {
      start(queue, blocks_of(s.heads), 256, sink_gradient_kernel<T>, shape, s.batch * s.sequence,
            a.log_sum_exp, delta, data<float>(access, args.grad_sinks));
    }
    by_head_dim(s, [&]<int D>() {
      constexpr int rows = D <= 64 ? 32 : D <= 128 ? 16 : 8;
      start(queue, tiles(s.keys(), rows, s.groups, s.batch), tile_threads<rows>,
            backward_keys_kernel<D, rows, T>, shape, a);
      start(queue, tiles(s.sequence, rows, s.heads, s.batch), tile_threads<rows>,
            backward_queries_kernel<D, rows, T>, shape, a);
    });
  });
}

}  // namespace trident::cuda
