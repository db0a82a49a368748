#include "tests/emulation/cublaslt_product.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dtype.h"

namespace emulation {
namespace {

double tanh_of_gelu(double x) {
  return std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
}
float gelu(float value) {
  const auto x = static_cast<double>(value);
  return static_cast<float>(0.5 * x * (1 + tanh_of_gelu(x)));
}
float gelu_derivative(float value) {
  const auto x = static_cast<double>(value);
  const double t = tanh_of_gelu(x);
  return static_cast<float>(0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286535588 *
                                                (1 + 3 * 0.044715 * x * x));
}

template <class T, class U>
void multiply(const Product& p) {
  const auto* const a = static_cast<const T*>(p.a);
  const auto* const b = static_cast<const T*>(p.b);
  const bool ta = p.description.transpose_a == CUBLAS_OP_T,
             tb = p.description.transpose_b == CUBLAS_OP_T;
  const std::int64_t m = p.m, n = p.n, k = p.k;
  std::vector<float> column(static_cast<std::size_t>(m)), wide(static_cast<std::size_t>(k * m));
  float* const sums = column.data();
  for (std::int64_t q = 0; q < k; ++q) {
    for (std::int64_t i = 0; i < m; ++i) {
      wide[static_cast<std::size_t>(q * m + i)] =
          static_cast<float>(ta ? a[i * p.lda + q] : a[q * p.lda + i]);
    }
  }
  const auto* const bias =
      has_bias(p.description) ? static_cast<const U*>(p.description.bias) : nullptr;
  auto* const gradient =
      has_gradient(p.description) ? static_cast<U*>(p.description.bias) : nullptr;
  auto* const auxiliary =
      has_auxiliary(p.description) ? static_cast<U*>(p.description.auxiliary) : nullptr;
  const bool derivative = p.description.epilogue == CUBLASLT_EPILOGUE_DGELU;
  for (std::int64_t j = 0; j < n; ++j) {
    std::fill(column.begin(), column.end(), 0.0f);
    float sum = 0;
    for (std::int64_t q = 0; q < k; ++q) {
      const auto x = static_cast<float>(tb ? b[q * p.ldb + j] : b[j * p.ldb + q]);
      const float* const y = wide.data() + q * m;
      for (std::int64_t i = 0; i < m; ++i) sums[i] += x * y[i];
      if (p.split && q == k / 2) {
        for (std::int64_t i = 0; i < m; ++i) sums[i] = static_cast<float>(U(sums[i]));
      }
      sum += x;
    }
    if (gradient) gradient[j] = U(sum);
    const U* const c = static_cast<const U*>(p.c) + j * p.ldc;
    U* const d = static_cast<U*>(p.d) + j * p.ldd;
    U* const saved = auxiliary ? auxiliary + j * p.description.auxiliary_ld : nullptr;
    for (std::int64_t i = 0; i < m; ++i) {
      float value = p.alpha * sums[i];
      if (bias) value += static_cast<float>(bias[i]);
      if (p.beta != 0) value += p.beta * static_cast<float>(c[i]);
      if (saved && derivative) {
        value *= gelu_derivative(static_cast<float>(saved[i]));
      } else if (saved) {
        saved[i] = U(value);
        value = gelu(value);
      }
      d[i] = U(value);
    }
  }
}

template <class T>
void multiply_into(const Product& p, cudaDataType_t output) {
  if (output == CUDA_R_32F) {
    multiply<T, float>(p);
  } else {
    multiply<T, T>(p);
  }
}

}  // namespace

void multiply(const Product& product, cudaDataType_t input, cudaDataType_t output) {
  if (input == CUDA_R_32F) {
    multiply_into<float>(product, output);
  } else if (input == CUDA_R_16BF) {
    multiply_into<trident::BFloat16>(product, output);
  } else {
    multiply_into<trident::Float16>(product, output);
  }
}

}  // namespace emulation
