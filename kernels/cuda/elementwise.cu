#include "kernels/cuda/elementwise.cuh"

#include "kernels/by_dtype.h"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/random.cuh"

namespace trident::cuda {
namespace {

// Fills memory with one repeated value; `pattern` holds 8 bytes of it.
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
  int size;  // bytes of an element
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

struct AddIntegers {
  const std::int64_t* x;
  std::int64_t* y;
  template <int N>
  __device__ void run(std::int64_t i) const {
    static_assert(N == 1);
    y[i] += x[i];
  }
};

struct Lerp {
  float* x;
  const float* target;
  float part;
  template <int N>
  __device__ void run(std::int64_t i) const {
    float a[N], b[N];
    load(x + i, a);
    load(target + i, b);
#pragma unroll
    for (int j = 0; j < N; ++j) a[j] = fmaf(b[j] - a[j], part, a[j]);
    store(x + i, a);
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

template <class T, class U>
struct AddBias {
  const U* x;
  const T* bias;
  U* y;
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

// The terms of column sums that are the elements themselves.
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
  // A view may begin at any element, so up to 15 bytes precede the first 16-byte access.
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
  if (x.dtype() == DType::i64) {
    const AddIntegers f{data<std::int64_t>(access, x), data<std::int64_t>(access, y)};
    return elementwise<1>(queue, x.numel(), true, f);
  }
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

void lerp(const Access& access, Context&, const Tensor& x, const Tensor& target, float part) {
  const Lerp f{data<float>(access, x), data<float>(access, target), part};
  elementwise<4>(queue_of(access), x.numel(), aligned(f.x, f.target), f);
}

void add_bias(const Access& access, Context&, const Tensor& x, const Tensor& bias,
              const Tensor& y) {
  by_dtype(bias.dtype(), [&]<class T>(T*) {
    by_dtype(x.dtype(), [&]<class U>(U*) {
      constexpr int N = pack_size_of<T, U>;
      const AddBias<T, U> f{data<U>(access, x), data<T>(access, bias), data<U>(access, y),
                            x.dim(1)};
      elementwise<N>(queue_of(access), x.numel(), aligned(f.x, f.bias, f.y) && f.columns % N == 0,
                     f);
    });
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
