// Loads and stores of 16 bytes at a time. In registers the elements are fp32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace trident::cuda {

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(BFloat16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
__device__ inline float to_float(Float16 x) {
  return __half2float(__ushort_as_half(x.bits));
}

// Rounds to nearest, ties to even.
template <class T>
__device__ inline T rounded(float x) {
  T y;
  if constexpr (sizeof(T) == 4) {
    y = x;
  } else if constexpr (DTypeOf<T>::value == DType::bf16) {
    y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
  } else {
    y.bits = __half_as_ushort(__float2half_rn(x));
  }
  return y;
}

// The number of elements of T in one 16-byte access.
template <class T>
inline constexpr int pack_size = 16 / static_cast<int>(sizeof(T));
// The number of elements to process together if arrays have several types: one full access of the
// narrowest type.
template <class... T>
inline constexpr int pack_size_of = [] {
  int size = 1;
  ((size = pack_size<T> > size ? pack_size<T> : size), ...);
  return size;
}();

// N elements in their memory format. N is 1, or a multiple of pack_size<T> at an address that is a
// multiple of 16. A kernel fetches several packs before it unpacks the first, so that their loads
// overlap.
template <int N, class T>
struct Packed {
  static_assert(N % pack_size<T> == 0);
  uint4 words[N / pack_size<T>];
};
template <class T>
struct Packed<1, T> {
  T value;
};

template <int N, class T>
__device__ inline Packed<N, T> fetch(const T* p) {
  Packed<N, T> x;
  if constexpr (N == 1) {
    x.value = *p;
  } else {
#pragma unroll
    for (int i = 0; i < N / pack_size<T>; ++i) x.words[i] = reinterpret_cast<const uint4*>(p)[i];
  }
  return x;
}

template <int N, class T>
__device__ inline void put(T* p, const Packed<N, T>& x) {
  if constexpr (N == 1) {
    *p = x.value;
  } else {
#pragma unroll
    for (int i = 0; i < N / pack_size<T>; ++i) reinterpret_cast<uint4*>(p)[i] = x.words[i];
  }
}

template <int N, class T>
__device__ inline void unpack(const Packed<N, T>& packed, float (&x)[N]) {
  if constexpr (N == 1) {
    x[0] = to_float(packed.value);
  } else {
    constexpr int size = pack_size<T>;
#pragma unroll
    for (int i = 0; i < N / size; ++i) {
      T values[size];
      std::memcpy(static_cast<void*>(values), &packed.words[i], sizeof packed.words[i]);
#pragma unroll
      for (int j = 0; j < size; ++j) x[i * size + j] = to_float(values[j]);
    }
  }
}

template <int N, class T>
__device__ inline void load(const T* p, float (&x)[N]) {
  unpack(fetch<N>(p), x);
}

template <int N, class T>
__device__ inline void store(T* p, const float (&x)[N]) {
  if constexpr (N == 1) {
    *p = rounded<T>(x[0]);
  } else {
    constexpr int size = pack_size<T>;
    static_assert(N % size == 0);
#pragma unroll
    for (int i = 0; i < N / size; ++i) {
      T values[size];
#pragma unroll
      for (int j = 0; j < size; ++j) values[j] = rounded<T>(x[i * size + j]);
      uint4 raw;
      std::memcpy(&raw, values, sizeof raw);
      reinterpret_cast<uint4*>(p)[i] = raw;
    }
  }
}

// Whether all addresses allow 16-byte accesses. Null pointers count as aligned.
template <class... P>
inline bool aligned(const P*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace trident::cuda
