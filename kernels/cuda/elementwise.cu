#include "kernels/cuda/elementwise.cuh"

#include "core/exact_sum.h"
#include "kernels/by_dtype.h"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/random.cuh"
#include "kernels/cuda/reduce.cuh"

namespace trident::cuda {
namespace {

// Bytes of one value, repeated: `pattern` holds 8 bytes' worth of them.
struct Fill {
  std::uint64_t* to;
  std::uint64_t pattern;
  template <int N>
  __device__ void run(std::int64_t i) const {
    if constexpr (N == 2) {
      ulonglong2 both;
      both.x = both.y = pattern;
      *reinterpret_cast<ulonglong2*>(to + i) = both;
    } else {
      to[i] = pattern;
    }
  }
};
struct FillBytes {
  std::uint8_t* to;
  std::uint64_t pattern;
  int size;  // of an element
  template <int N>
  __device__ void run(std::int64_t i) const {
    to[i] = static_cast<std::uint8_t>(pattern >> (i % size * 8));
  }
};

template <class T>
std::uint64_t repeated(T value) {
  std::uint64_t pattern = 0;
  for (std::size_t at = 0; at < 8; at += sizeof(T)) {
    std::memcpy(reinterpret_cast<char*>(&pattern) + at, &value, sizeof(T));
  }
  return pattern;
}

std::uint64_t pattern_of(DType dtype, double value) {
  switch (dtype) {
    case DType::f64:
      return repeated(value);
    case DType::f32:
      return repeated(static_cast<float>(value));
    case DType::bf16:
      return repeated(BFloat16(static_cast<float>(value)).bits);
    case DType::f16:
      return repeated(Float16(static_cast<float>(value)).bits);
    case DType::i64:
      return repeated(static_cast<std::int64_t>(value));
    case DType::i32:
      return repeated(static_cast<std::int32_t>(value));
    case DType::u8:
      return repeated(static_cast<std::uint8_t>(value));
  }
  return 0;
}

template <class T, class U>
struct Cast {
  const T* from;
  U* to;
  template <int N>
  __device__ void run(std::int64_t i) const {
    float x[N];
    load(from + i, x);
    store(to + i, x);
  }
};
template <class U>
struct CastFromDouble {
  const double* from;
  U* to;
  template <int N>
  __device__ void run(std::int64_t i) const {
    to[i] = rounded<U>(static_cast<float>(from[i]));
  }
};
template <class T>
struct CastToDouble {
  const T* from;
  double* to;
  template <int N>
  __device__ void run(std::int64_t i) const {
    to[i] = static_cast<double>(to_float(from[i]));
  }
};

template <class T, class U>
struct Add {
  const T* x;
  U* y;
  template <int N>
  __device__ void run(std::int64_t i) const {
    float a[N], b[N];
    load(x + i, a);
    load(y + i, b);
#pragma unroll
    for (int j = 0; j < N; ++j) b[j] += a[j];
    store(y + i, b);
  }
};

struct Scale {
  float* x;
  float factor;
  template <int N>
  __device__ void run(std::int64_t i) const {
    float a[N];
    load(x + i, a);
#pragma unroll
    for (int j = 0; j < N; ++j) a[j] *= factor;
    store(x + i, a);
  }
};

template <class T>
struct AddBias {
  const T *x, *bias;
  T* y;
  std::int64_t columns;
  template <int N>
  __device__ void run(std::int64_t i) const {
    float a[N], b[N];
    load(x + i, a);
    load(bias + i % columns, b);
#pragma unroll
    for (int j = 0; j < N; ++j) a[j] += b[j];
    store(y + i, a);
  }
};

template <class T>
struct Itself {
  static constexpr int sums = 1;
  const T* x;
  std::int64_t columns;
  template <int N>
  __device__ void add(std::int64_t row, std::int64_t column, float (&totals)[1][N]) const {
    float a[N];
    load(x + row * columns + column, a);
#pragma unroll
    for (int j = 0; j < N; ++j) totals[0][j] += a[j];
  }
};

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

template <class T>
struct FillNormal {
  T* to;
  std::uint64_t key;
  float deviation, mean;
  std::int64_t columns, row_begin, column_begin, global_rows, global_columns;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t row = row_begin + i / columns, column = column_begin + i % columns;
    float value = 0;
    if (row < global_rows && column < global_columns) {
      const auto index = static_cast<std::uint64_t>(row * global_columns + column);
      value = __fadd_rn(__fmul_rn(deviation, normal_of(key, index)), mean);
    }
    to[i] = rounded<T>(value);
  }
};

}  // namespace

void fill(const Access& access, Context&, const Tensor& x, double value) {
  const Queue& queue = queue_of(access);
  auto* const to = static_cast<std::uint8_t*>(TensorAddress::of(access, x));
  const std::uint64_t pattern = pattern_of(x.dtype(), value);
  // A view may begin at any element: up to 15 bytes before the first whole access.
  const std::int64_t bytes = x.bytes();
  const int size = static_cast<int>(size_of(x.dtype()));
  const std::int64_t head =
      std::min<std::int64_t>(bytes, -reinterpret_cast<std::uintptr_t>(to) % 16);
  const std::int64_t words = (bytes - head) / 8;
  elementwise<1>(queue, head, true, FillBytes{to, pattern, size});
  elementwise<2>(queue, words, true, Fill{reinterpret_cast<std::uint64_t*>(to + head), pattern});
  elementwise<1>(queue, bytes - head - words * 8, true,
                 FillBytes{to + head + words * 8, pattern, size});
}

void copy(const Access& access, Context&, const Tensor& from, const Tensor& to) {
  const Queue& queue = queue_of(access);
  if (from.numel() == 0) return;
  if (from.dtype() == to.dtype()) {
    void* const source = TensorAddress::of(access, from);
    void* const target = TensorAddress::of(access, to);
    if (source == target) return;
    check(cudaMemcpyAsync(target, source, static_cast<std::size_t>(from.bytes()),
                          cudaMemcpyDeviceToDevice, queue.stream),
          "cudaMemcpyAsync on the device");
    return;
  }
  const std::int64_t n = from.numel();
  if (from.dtype() == DType::f64) {
    by_dtype(to.dtype(), [&]<class U>(U*) {
      elementwise<1>(queue, n, true,
                     CastFromDouble<U>{data<double>(access, from), data<U>(access, to)});
    });
  } else if (to.dtype() == DType::f64) {
    by_dtype(from.dtype(), [&]<class T>(T*) {
      elementwise<1>(queue, n, true,
                     CastToDouble<T>{data<T>(access, from), data<double>(access, to)});
    });
  } else {
    by_dtype(from.dtype(), [&]<class T>(T*) {
      by_dtype(to.dtype(), [&]<class U>(U*) {
        const Cast<T, U> f{data<T>(access, from), data<U>(access, to)};
        elementwise<pack_size_of<T, U>>(queue, n, aligned(f.from, f.to), f);
      });
    });
  }
}

void add(const Access& access, Context&, const Tensor& x, const Tensor& y) {
  const Queue& queue = queue_of(access);
  by_dtype(x.dtype(), [&]<class T>(T*) {
    by_dtype(y.dtype(), [&]<class U>(U*) {
      const Add<T, U> f{data<T>(access, x), data<U>(access, y)};
      elementwise<pack_size_of<T, U>>(queue, x.numel(), aligned(f.x, f.y), f);
    });
  });
}

void scale(const Access& access, Context&, const Tensor& x, float factor) {
  const Scale f{data<float>(access, x), factor};
  elementwise<4>(queue_of(access), x.numel(), aligned(f.x), f);
}

void add_bias(const Access& access, Context&, const Tensor& x, const Tensor& bias,
              const Tensor& y) {
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const AddBias<T> f{data<T>(access, x), data<T>(access, bias), data<T>(access, y), x.dim(1)};
    elementwise<pack_size<T>>(queue_of(access), x.numel(),
                              aligned(f.x, f.bias, f.y) && x.dim(1) % pack_size<T> == 0, f);
  });
}

void bias_backward(const Access& access, Context& context, const Tensor& grad_y,
                   const Tensor& grad_bias) {
  by_dtype(grad_y.dtype(), [&]<class T>(T*) {
    by_dtype(grad_bias.dtype(), [&]<class U>(U*) {
      const Itself<T> f{data<T>(access, grad_y), grad_y.dim(1)};
      column_sums<pack_size<T>>(access, context, grad_y.dim(0), grad_y.dim(1), aligned(f.x), f,
                                ColumnTargets<1, U>{{data<U>(access, grad_bias)}});
    });
  });
}

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

void fill_normal(const Access& access, Context&, const NormalArgs& args) {
  const bool flat = args.x.shape().rank() == 1;
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    elementwise<1>(queue_of(access), args.x.numel(), true,
                   FillNormal<T>{.to = data<T>(access, args.x),
                                 .key = args.key,
                                 .deviation = args.deviation,
                                 .mean = args.mean,
                                 .columns = args.x.dim(flat ? 0 : 1),
                                 .row_begin = args.row_begin,
                                 .column_begin = args.column_begin,
                                 .global_rows = args.global_rows,
                                 .global_columns = args.global_columns});
  });
}

}  // namespace trident::cuda
