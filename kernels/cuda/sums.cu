// Sums of a tensor's elements and of their squares.
#include <algorithm>

#include "core/exact_sum.h"
#include "kernels/by_dtype.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce.cuh"

namespace trident::cuda {
namespace {

__device__ inline double to_double(double x) {
  return x;
}
template <class T>
__device__ inline double to_double(T x) {
  return static_cast<double>(to_float(x));
}

// One block: losses and the like are few.
template <class T>
__global__ void __launch_bounds__(256) sum_kernel(std::int64_t n, const T* x, double* total) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += 256) sum += to_double(x[i]);
  sum = reduce_block<256, Sum>(sum);
  if (threadIdx.x == 0) *total = sum;
}

// Eight threads a block of elements, each taking packs in turn, whatever the pointer's alignment.
template <class T, bool Wide>
__global__ void __launch_bounds__(256)
    square_sums_kernel(std::int64_t n, std::int64_t block, std::int64_t blocks, const T* x,
                       double* out) {
  constexpr int N = pack_size<T>;
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x) / 8;
  double sum = 0;
  if (at < blocks) {
    const std::int64_t begin = at * block, end = begin + block < n ? begin + block : n;
    for (std::int64_t i = begin + threadIdx.x % 8 * N; i < end; i += 8 * N) {
      if (Wide && i + N <= end) {
        float a[N];
        load(x + i, a);
#pragma unroll
        for (int j = 0; j < N; ++j) sum += static_cast<double>(a[j]) * static_cast<double>(a[j]);
      } else {
        for (std::int64_t j = i; j < end && j < i + N; ++j) {
          const double a = static_cast<double>(to_float(x[j]));
          sum += a * a;
        }
      }
    }
  }
#pragma unroll
  for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (at < blocks && threadIdx.x % 8 == 0) out[at] = sum;
}

// The digits of a Kulisch accumulator (core/exact_sum.h) are integers: whatever the order of the
// additions, the sums are the same.
constexpr int exact_digits = ExactSum::limbs;

__global__ void __launch_bounds__(256)
    exact_sum_kernel(std::int64_t n, const double* x, unsigned long long* state) {
  __shared__ unsigned long long digits[exact_digits + 1];
  for (int i = threadIdx.x; i <= exact_digits; i += 256) digits[i] = 0;
  __syncthreads();
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * 256;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x; i < n;
       i += threads) {
    unsigned long long bits = 0;
    const double value = x[i];
    std::memcpy(&bits, &value, sizeof bits);
    const int biased = static_cast<int>((bits >> 52) & 0x7ff);
    unsigned long long mantissa = bits & ((1ull << 52) - 1);
    if (biased == 0x7ff) {
      atomicAdd(&digits[exact_digits], 1ull);
      continue;
    }
    if (biased != 0) mantissa |= 1ull << 52;
    const int position = biased == 0 ? 0 : biased - 1;  // the lowest bit weighs 2^(position-1074)
    const int limb = position / 32, shift = position % 32;
    const unsigned long long low = mantissa << shift;
    const unsigned long long high = shift == 0 ? 0 : mantissa >> (64 - shift);
    const unsigned long long parts[3] = {low & 0xffffffffull, low >> 32, high};
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      const unsigned long long digit = bits >> 63 ? 0 - parts[part] : parts[part];
      if (digit != 0) atomicAdd(&digits[limb + part], digit);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i <= exact_digits; i += 256) {
    if (digits[i] != 0) atomicAdd(&state[i], digits[i]);
  }
}

// Digits to [0, 2^32), but for the last.
__global__ void __launch_bounds__(32) exact_carry_kernel(std::int64_t* state) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i + 1 < exact_digits; ++i) {
    const std::int64_t low = state[i] & 0xffffffff;
    state[i + 1] += (state[i] - low) / (std::int64_t{1} << 32);
    state[i] = low;
  }
}

}  // namespace

void sum(const Access& access, Context&, const Tensor& x, const Tensor& total) {
  const Queue& queue = queue_of(access);
  double* const to = data<double>(access, total);
  if (x.dtype() == DType::f64) {
    start(queue, blocks_of(1), 256, sum_kernel<double>, x.numel(), data<double>(access, x), to);
  } else {
    by_dtype(x.dtype(), [&]<class T>(T*) {
      start(queue, blocks_of(1), 256, sum_kernel<T>, x.numel(), data<T>(access, x), to);
    });
  }
}

void square_sums(const Access& access, Context&, const Tensor& x, std::int64_t block,
                 const Tensor& out) {
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, x);
    const bool wide = aligned(from) && block % pack_size<T> == 0;
    start(queue_of(access), blocks_of(ceil_div(out.numel() * 8, 256)), 256,
          wide ? square_sums_kernel<T, true> : square_sums_kernel<T, false>, x.numel(), block,
          out.numel(), from, data<double>(access, out));
  });
}

void exact_sum(const Access& access, Context&, const Tensor& x, const Tensor& state) {
  const Queue& queue = queue_of(access);
  std::int64_t* const digits = data<std::int64_t>(access, state);
  start(queue, blocks_of(std::min<std::int64_t>(ceil_div(x.numel(), 256), 1024)), 256,
        exact_sum_kernel, x.numel(), data<double>(access, x),
        reinterpret_cast<unsigned long long*>(digits));
  start(queue, blocks_of(1), 32, exact_carry_kernel, digits);
}

}  // namespace trident::cuda
