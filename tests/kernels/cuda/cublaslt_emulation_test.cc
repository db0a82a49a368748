// The emulated cuBLASLt (tests/emulation/include/cublasLt.h) refuses the calls that the real one
// refuses.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace trident::cuda {
namespace {

constexpr auto known_epilogues = {CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,
                                  CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                  CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_BGRADB};

struct Call {
  cudaDataType_t type_a = CUDA_R_16BF, type_b = CUDA_R_16BF, type_d = CUDA_R_16BF;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int64_t columns_of_b = 8, auxiliary_ld = 16;
  bool bias = true, auxiliary = true, c = true;
  float beta = 1;
  std::uint32_t promised = 16;
  std::size_t offset = 0, bias_offset = 0, workspace_offset = 0;  // bytes, for the product only
  std::size_t workspace = 4096;                                   // for the product
  std::size_t algorithm = 1;
};

class CudaEmulatedProducts : public testing::Test {
 protected:
  CudaEmulatedProducts() {
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    cudaMalloc(&memory_, 7 * part);
    cublasLtCreate(&handle_);
  }
  ~CudaEmulatedProducts() override {
    cublasLtDestroy(handle_);
    cudaStreamDestroy(stream_);
    cudaFree(memory_);
  }

  // The status of the heuristic, or of the product if the heuristic succeeds.
  cublasStatus_t status(const Call& call) {
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulDescCreate(&description, call.compute, call.scale);
    cublasLtMatrixLayoutCreate(&a, call.type_a, 16, 4, 16);
    cublasLtMatrixLayoutCreate(&b, call.type_b, 4, static_cast<std::uint64_t>(call.columns_of_b),
                               4);
    cublasLtMatrixLayoutCreate(&d, call.type_d, 16, 8, 16);
    cublasLtMatmulPreferenceCreate(&preference);
    const auto describe = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
      EXPECT_EQ(cublasLtMatmulDescSetAttribute(description, name, &value, sizeof value),
                CUBLAS_STATUS_SUCCESS);
    };
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
      EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof value),
                CUBLAS_STATUS_SUCCESS);
    };
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE, call.epilogue);
    void* const bias = call.bias ? at(3) : nullptr;
    void* const auxiliary = call.auxiliary ? at(4) : nullptr;
    describe(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, auxiliary);
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.auxiliary_ld);
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{4096});
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(name, call.promised);
    }
    std::array<cublasLtMatmulHeuristicResult_t, 8> results{};
    int count = 0;
    cublasStatus_t found = cublasLtMatmulAlgoGetHeuristic(handle_, description, a, b, d, d,
                                                          preference, 8, results.data(), &count);
    if (found == CUBLAS_STATUS_SUCCESS) {
      EXPECT_EQ(count, 2);  // the third would need more workspace
      void* const moved = at(3, call.bias_offset);
      if (call.bias) describe(CUBLASLT_MATMUL_DESC_BIAS_POINTER, moved);
      const float alpha = 1;
      found =
          cublasLtMatmul(handle_, description, &alpha, at(0, call.offset), a, at(1), b, &call.beta,
                         call.c ? at(2) : nullptr, d, at(2), d, &results[call.algorithm].algo,
                         at(5, call.workspace_offset), call.workspace, stream_);
    }
    cudaStreamSynchronize(stream_);
    cublasLtMatmulPreferenceDestroy(preference);
    for (const auto layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(description);
    return found;
  }

 private:
  static constexpr std::size_t part = 8192;
  void* at(std::size_t index, std::size_t offset = 0) {
    return static_cast<std::byte*>(memory_) + index * part + offset;
  }
  void* memory_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
};

TEST_F(CudaEmulatedProducts, RefuseTheRequestsThatTheRealOnesRefuse) {
  for (const auto epilogue : known_epilogues) {
    EXPECT_EQ(status({.epilogue = epilogue}), CUBLAS_STATUS_SUCCESS) << epilogue;
  }
  EXPECT_EQ(status({.type_d = CUDA_R_32F}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status({.c = false, .beta = 0}), CUBLAS_STATUS_SUCCESS);

  const auto none = CUBLAS_STATUS_NOT_SUPPORTED, wrong = CUBLAS_STATUS_INVALID_VALUE;
  EXPECT_EQ(status({.type_b = CUDA_R_16F}), none);
  EXPECT_EQ(status({.type_d = CUDA_R_16F}), none);
  EXPECT_EQ(status({.compute = CUBLAS_COMPUTE_16F}), none);
  EXPECT_EQ(status({.compute = CUBLAS_COMPUTE_32F_FAST_TF32}), none);
  EXPECT_EQ(status({.scale = CUDA_R_64F}), none);
  EXPECT_EQ(status({.columns_of_b = 9}), wrong);
  EXPECT_EQ(status({.c = false}), wrong);
  for (const auto epilogue :
       {CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU}) {
    EXPECT_EQ(status({.epilogue = epilogue, .auxiliary_ld = 20}), wrong);
    EXPECT_EQ(status({.epilogue = epilogue, .auxiliary_ld = 8}), wrong);
    EXPECT_EQ(status({.epilogue = epilogue, .auxiliary = false}), wrong);
  }
  for (const auto epilogue :
       {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_BGRADB}) {
    EXPECT_EQ(status({.epilogue = epilogue, .bias = false}), wrong);
    EXPECT_EQ(status({.epilogue = epilogue, .bias_offset = 2}), none);
  }
  EXPECT_EQ(status({.offset = 2}), none);
  EXPECT_EQ(status({.promised = 2, .offset = 2}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status({.workspace_offset = 16}), wrong);
  EXPECT_EQ(status({.workspace = 4095}), wrong);
  EXPECT_EQ(status({.workspace = 0, .algorithm = 0}), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace trident::cuda
