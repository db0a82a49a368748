// A product of the emulated cuBLASLt, and its arithmetic.
#pragma once

#include <cublasLt.h>

#include <cstdint>

struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;  // or its gradient
  void* auxiliary = nullptr;
  std::int64_t auxiliary_ld = 0;
};
namespace emulation {

inline bool has_bias(const cublasLtMatmulDescOpaque_t& d) {
  return d.epilogue == CUBLASLT_EPILOGUE_BIAS || d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
inline bool has_gradient(const cublasLtMatmulDescOpaque_t& d) {
  return d.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
inline bool has_auxiliary(const cublasLtMatmulDescOpaque_t& d) {
  return d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
         d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || d.epilogue == CUBLASLT_EPILOGUE_DGELU;
}
// Holds all by value: a real GPU keeps no descriptor alive either.
struct Product {
  cublasLtMatmulDescOpaque_t description;
  std::int64_t m, n, k, lda, ldb, ldc, ldd;
  const void *a, *b, *c;
  void* d;
  float alpha, beta;
  bool split;  // k in two parts, of which the first is rounded to the output's type
};

// Adds up in fp32 in ascending k and rounds once, unless the product is split.
void multiply(const Product&, cudaDataType_t input, cudaDataType_t output);

}  // namespace emulation
