#include "kernels/peers.h"

#include <string>
#include <type_traits>

#include "base/error.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"

namespace trident::cuda {
namespace {

constexpr int most_peers = 64;

// The accumulator of an element type.
template <class T>
using Wide =
    std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float, T>;

template <class T>
__device__ inline Wide<T> widened(T x) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return x;
  } else {
    return to_float(x);
  }
}
template <class T>
__device__ inline T narrowed(Wide<T> x) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return x;
  } else {
    return rounded<T>(x);
  }
}

// As in kernels/cpu/reduce.cc: integers wrap, a NaN wins minimum and maximum.
template <class T>
__device__ inline T combined(ReduceOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const auto u = static_cast<std::uint64_t>(a), v = static_cast<std::uint64_t>(b);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::average:
        return static_cast<T>(u + v);
      case ReduceOp::product:
        return static_cast<T>(u * v);
      case ReduceOp::bit_and:
        return static_cast<T>(a & b);
      case ReduceOp::bit_or:
        return static_cast<T>(a | b);
      case ReduceOp::bit_xor:
        return static_cast<T>(a ^ b);
      default:
        break;
    }
  } else {
    if (op == ReduceOp::sum || op == ReduceOp::average) return a + b;
    if (op == ReduceOp::product) return a * b;
  }
  if (op == ReduceOp::minimum) return a < b || a != a ? a : b;
  return a > b || a != a ? a : b;
}

template <class T>
struct Reduce {
  const T* sources[most_peers];
  T* places[most_peers];
  int source_count, place_count;
  ReduceOp op;
  int divisor;

  template <int N>
  __device__ static void take(const T* p, Wide<T> (&x)[N]) {
    T values[N];
    if constexpr (N > 1) {
      const uint4 raw = *reinterpret_cast<const uint4*>(p);
      std::memcpy(static_cast<void*>(values), &raw, sizeof raw);
    } else {
      values[0] = *p;
    }
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = widened(values[j]);
  }

  template <int N>
  __device__ void run(std::int64_t i) const {
    Wide<T> total[N];
    take(sources[0] + i, total);
    for (int r = 1; r < source_count; ++r) {
      Wide<T> next[N];
      take(sources[r] + i, next);
#pragma unroll
      for (int j = 0; j < N; ++j) total[j] = combined(op, total[j], next[j]);
    }
    T values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (op == ReduceOp::average)
        total[j] = static_cast<Wide<T>>(total[j] / static_cast<Wide<T>>(divisor));
      values[j] = narrowed<T>(total[j]);
    }
    for (int p = 0; p < place_count; ++p) {
      if constexpr (N > 1) {
        uint4 raw;
        std::memcpy(&raw, values, sizeof raw);
        *reinterpret_cast<uint4*>(places[p] + i) = raw;
      } else {
        places[p][i] = values[0];
      }
    }
  }
};

template <class T>
void reduce_as(const Queue& queue, const ReducePeers& args) {
  Reduce<T> f{};
  bool wide = true;
  for (const void* const source : args.sources) {
    f.sources[f.source_count++] = static_cast<const T*>(source);
    wide = wide && aligned(static_cast<const T*>(source));
  }
  for (void* const place : args.places) {
    f.places[f.place_count++] = static_cast<T*>(place);
    wide = wide && aligned(static_cast<const T*>(place));
  }
  f.op = args.op;
  f.divisor = args.divisor;
  elementwise<pack_size<T>>(queue, args.count, wide, f);
}

}  // namespace

void copy_peer(const Access& access, void* to, const void* from, std::size_t bytes) {
  if (to == from || bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue_of(access).stream),
        "cudaMemcpyAsync between ranks");
}

void reduce_peers(const Access& access, const ReducePeers& args) {
  if (args.sources.size() > most_peers || args.places.size() > most_peers) {
    throw Error("reduce: got " + std::to_string(args.sources.size()) +
                " ranks on one GPU, need at most " + std::to_string(most_peers));
  }
  const Queue& queue = queue_of(access);
  switch (args.dtype) {
    case DType::f64:
      return reduce_as<double>(queue, args);
    case DType::f32:
      return reduce_as<float>(queue, args);
    case DType::bf16:
      return reduce_as<BFloat16>(queue, args);
    case DType::f16:
      return reduce_as<Float16>(queue, args);
    case DType::i64:
      return reduce_as<std::int64_t>(queue, args);
    case DType::i32:
      return reduce_as<std::int32_t>(queue, args);
    case DType::u8:
      return reduce_as<std::uint8_t>(queue, args);
  }
}

}  // namespace trident::cuda
