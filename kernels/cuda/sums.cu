// Sums of a tensor's elements and of their squares, and exact sums.
#include <algorithm>
#include <vector>

#include "core/exact_sum.h"
#include "kernels/by_dtype.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/ordered_sum.cuh"
#include "kernels/cuda/parts.cuh"

namespace trident::cuda {
namespace {

__device__ inline double to_double(double x) {
  return x;
}
template <class T>
__device__ inline double to_double(T x) {
  return static_cast<double>(to_float(x));
}

// Runs in one block, for at most ordered_chunk elements.
template <class T>
__global__ void __launch_bounds__(256) sum_kernel(std::int64_t n, const T* x, double* total) {
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < n; i += 256) sum += to_double(x[i]);
  sum = reduce_block<256, Sum>(sum);
  if (threadIdx.x == 0) *total = sum;
}

template <class T>
struct Elements {
  const T* x;
  template <int N>
  __device__ double sum(std::int64_t i) const {
    if constexpr (N == 1) {
      return to_double(x[i]);
    } else {
      float a[N];
      load(x + i, a);
      double total = 0;
#pragma unroll
      for (int j = 0; j < N; ++j) total += static_cast<double>(a[j]);
      return total;
    }
  }
};

template <int N, class T>
void sum_of(const Access& access, Context& context, const Tensor& x, double* to) {
  const T* const from = data<T>(access, x);
  if (x.numel() <= ordered_chunk) {
    start(queue_of(access), blocks_of(1), 256, sum_kernel<T>, x.numel(), from, to);
  } else {
    ordered_sum<N>(access, context, x.numel(), aligned(from), Elements<T>{from}, to, false);
  }
}

// Eight threads handle block `at` of the elements. They take packs in turn, whatever the alignment
// of the pointer, so alignment does not change the result. All threads of a warp call it.
template <bool Wide, class T>
__device__ inline void square_sum(std::int64_t n, std::int64_t block, std::int64_t blocks,
                                  std::int64_t at, const T* x, double* out) {
  constexpr int N = pack_size<T>;
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
template <class T, bool Wide>
__global__ void __launch_bounds__(256)
    square_sums_kernel(std::int64_t n, std::int64_t block, std::int64_t blocks, const T* x,
                       double* out) {
  square_sum<Wide>(n, block, blocks,
                   (static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x) / 8, x, out);
}

template <class T>
struct SquareSums {
  const T* x;
  double* out;
  std::int64_t block, blocks;
  bool wide;
};
constexpr int square_turns = 8;  // blocks that eight threads of square_sums_parts sum up
template <class T>
__global__ void __launch_bounds__(256)
    square_sums_parts(const __grid_constant__ Parts<SquareSums<T>> parts) {
  const auto share = parts.of(blockIdx.x);
  const SquareSums<T>& f = parts.f[share.part];
  const std::int64_t n = parts.n[share.part];
  const std::int64_t first = share.block * 32 * square_turns + threadIdx.x / 8;
  if (f.wide) {
#pragma unroll 4
    for (int turn = 0; turn < square_turns; ++turn) {
      square_sum<true>(n, f.block, f.blocks, first + turn * 32, f.x, f.out);
    }
  } else {
#pragma unroll 1
    for (int turn = 0; turn < square_turns; ++turn) {
      square_sum<false>(n, f.block, f.blocks, first + turn * 32, f.x, f.out);
    }
  }
}

template <class T>
bool allows_packs(const T* x, std::int64_t block) {
  return aligned(x) && block % pack_size<T> == 0;
}

struct Highest {
  __device__ static int of(int a, int b) { return a > b ? a : b; }
};

// The digits of a Kulisch accumulator (core/exact_sum.h) are integers, so their sums do not depend
// on the order of additions.
constexpr int exact_digits = ExactSum::limbs;

// A thread's sums of digits limb … limb + 3. They cover numbers of about 64 binades. The squares of
// one tensor seldom leave that range, so additions to shared memory are rare. Each sum is of fewer
// than 2^28 digits below 2^32.
struct DigitSums {
  int limb = -1;  // -1: none yet
  unsigned long long sums[4] = {};

  __device__ void flush(unsigned long long* digits) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (sums[i] != 0) atomicAdd(&digits[limb + i], sums[i]);
      sums[i] = 0;
    }
  }
  __device__ void add(double value, unsigned long long* digits) {
    unsigned long long bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (bits << 1 == 0) return;
    const int biased = static_cast<int>((bits >> 52) & 0x7ff);
    if (biased == 0x7ff) {
      atomicAdd(&digits[exact_digits], 1ull);
      return;
    }
    const unsigned long long mantissa =
        (bits & ((1ull << 52) - 1)) | (biased == 0 ? 0 : 1ull << 52);
    const int position = biased == 0 ? 0 : biased - 1;  // the lowest bit weighs 2^(position-1074)
    const int first = position / 32, shift = position % 32;
    // The range has two starting limbs, so that numbers near the edge between them stay in it.
    if (limb < 0 || first < limb || first > limb + 1) {
      flush(digits);
      limb = first;
    }
    const unsigned long long low = mantissa << shift;
    const unsigned long long parts[3] = {low & 0xffffffffull, low >> 32,
                                         shift == 0 ? 0 : mantissa >> (64 - shift)};
    const unsigned long long sign = 0 - (bits >> 63);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned long long here = i < 3 ? parts[i] : 0, below = i > 0 ? parts[i - 1] : 0;
      const unsigned long long digit = first == limb ? here : below;
      sums[i] += (digit ^ sign) - sign;
    }
  }
};

__global__ void __launch_bounds__(256)
    exact_sum_kernel(std::int64_t n, const double* x, unsigned long long* state) {
  __shared__ unsigned long long digits[exact_digits + 1];
  for (int i = threadIdx.x; i <= exact_digits; i += 256) digits[i] = 0;
  __syncthreads();
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * 256;
  DigitSums own;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  for (; i + 3 * threads < n; i += 4 * threads) {
    double values[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) values[k] = x[i + k * threads];
#pragma unroll 1
    for (int k = 0; k < 4; ++k) {
      own.add(k == 0 ? values[0] : k == 1 ? values[1] : k == 2 ? values[2] : values[3], digits);
    }
  }
  for (; i < n; i += threads) own.add(x[i], digits);
  // One lane adds the sums of all lanes that hold the same limbs.
  const int limb = reduce_warp<Highest>(own.limb);
  const bool same = own.limb == limb;
  unsigned long long sums[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) sums[k] = reduce_warp<Sum>(same ? own.sums[k] : 0ull);
  if (!same) own.flush(digits);
  if (threadIdx.x % 32 == 0 && limb >= 0) {
#pragma unroll
    for (int k = 0; k < 4; ++k) own.sums[k] = sums[k];
    own.limb = limb;
    own.flush(digits);
  }
  __syncthreads();
  for (int k = threadIdx.x; k <= exact_digits; k += 256) {
    if (digits[k] != 0) atomicAdd(&state[k], digits[k]);
  }
}

// Propagates carries: all digits but the last end in [0, 2^32).
__global__ void __launch_bounds__(32) exact_carry_kernel(std::int64_t* state) {
  __shared__ std::int64_t digits[exact_digits];
  for (int i = threadIdx.x; i < exact_digits; i += 32) digits[i] = state[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    std::int64_t carry = 0;
#pragma unroll 4
    for (int i = 0; i < exact_digits; ++i) {
      const std::int64_t digit = digits[i] + carry;
      const std::int64_t low = i + 1 < exact_digits ? digit & 0xffffffff : digit;
      carry = (digit - low) >> 32;
      digits[i] = low;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < exact_digits; i += 32) state[i] = digits[i];
}

}  // namespace

void sum(const Access& access, Context& context, const Tensor& x, const Tensor& total) {
  double* const to = data<double>(access, total);
  if (x.dtype() == DType::f64) {
    sum_of<1, double>(access, context, x, to);
  } else {
    by_dtype(x.dtype(), [&]<class T>(T*) { sum_of<pack_size<T>, T>(access, context, x, to); });
  }
}

void square_sums_of_all(const Access& access, Context& context,
                        const std::vector<SquareSumsArgs>& all, std::int64_t block) {
  if (all.empty()) return;
  by_dtype(all.front().x.dtype(), [&]<class T>(T*) {
    PartsLauncher<SquareSums<T>> parts(queue_of(access), square_sums_parts<T>);
    for (const auto& [x, out] : all) {
      if (x.dtype() != all.front().x.dtype()) {
        square_sums(access, context, x, block, out);
        continue;
      }
      const T* const from = data<T>(access, x);
      parts.add(x.numel(), ceil_div(out.numel(), 32 * square_turns),
                {.x = from,
                 .out = data<double>(access, out),
                 .block = block,
                 .blocks = out.numel(),
                 .wide = allows_packs(from, block)});
    }
    parts.run();
  });
}

void square_sums(const Access& access, Context&, const Tensor& x, std::int64_t block,
                 const Tensor& out) {
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, x);
    const bool wide = allows_packs(from, block);
    start(queue_of(access), blocks_of(ceil_div(out.numel() * 8, 256)), 256,
          wide ? square_sums_kernel<T, true> : square_sums_kernel<T, false>, x.numel(), block,
          out.numel(), from, data<double>(access, out));
  });
}

void exact_sum(const Access& access, Context&, const Tensor& x, const Tensor& state) {
  const Queue& queue = queue_of(access);
  std::int64_t* const digits = data<std::int64_t>(access, state);
  // Two blocks for each multiprocessor of the largest GPUs; fewer if each thread would have few
  // elements.
  start(queue, blocks_of(std::min<std::int64_t>(ceil_div(x.numel(), 256 * 8), 264)), 256,
        exact_sum_kernel, x.numel(), data<double>(access, x),
        reinterpret_cast<unsigned long long*>(digits));
  start(queue, blocks_of(1), 32, exact_carry_kernel, digits);
}

}  // namespace trident::cuda
