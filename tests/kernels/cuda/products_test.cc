// Tests which algorithm of cuBLASLt a product gets, and when its bias, activation or bias gradient
// is computed in separate steps. The tests run on an emulated cuBLASLt
// (tests/emulation/include/cublasLt.h), whose algorithms give the same bits.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/context.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda_device.h"
#include "kernels/gemm.h"

namespace trident::cuda {
namespace {

using emulation::ProductRefusal;
using std::chrono::milliseconds;
using Done = std::array<int, emulation::product_algorithms>;

constexpr auto all_epilogues = {CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,
                                CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_BGRADB};
constexpr auto slow = milliseconds(50);

class CudaProducts : public testing::Test {
 protected:
  CudaProducts() { emulation::reset_product_counts(); }
  ~CudaProducts() override {
    for (const auto epilogue : all_epilogues) emulation::set_product_behavior(epilogue, {});
    unsetenv("TRIDENT_CUDA_WITHOUT");
  }

  static void refuse(cublasLtEpilogue_t epilogue, ProductRefusal refusal) {
    emulation::set_product_behavior(epilogue, {.refusal = refusal});
  }
  static void slow_down(cublasLtEpilogue_t epilogue) {
    emulation::set_product_behavior(epilogue, {.delay = {slow, slow, slow}});
  }
  static emulation::ProductCounts counts(cublasLtEpilogue_t epilogue) {
    return emulation::product_counts(epilogue);
  }

  std::unique_ptr<Device> device = make_cuda_device(0);
};

// One context's products of small multiples of 1/4, which every algorithm computes exactly.
struct Case {
  Case(Device& device, KernelOptions options, DType type = DType::f32, std::int64_t columns = 16)
      : context(device, 1, options), dtype(type), n(columns) {}

  static float number(std::int64_t i, int seed) {
    return static_cast<float>((i * 7 + seed * 5) % 9 - 4) / 4;
  }
  void fill(const Tensor& tensor, int seed) {
    std::vector<float> values;
    std::vector<BFloat16> narrow;
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      values.push_back(number(i, seed));
      narrow.push_back(BFloat16(values.back()));
    }
    context.copy_from_host(tensor, tensor.dtype() == DType::f32
                                       ? std::as_bytes(std::span<const float>(values))
                                       : std::as_bytes(std::span<const BFloat16>(narrow)));
  }
  Tensor put(Shape shape, int seed, DType type) {
    const Tensor tensor = context.empty(shape, type, Category::activation);
    fill(tensor, seed);
    return tensor;
  }
  Tensor put(Shape shape, int seed) { return put(shape, seed, dtype); }
  Tensor empty(Shape shape) { return context.empty(shape, dtype, Category::activation); }
  std::vector<float> get(const Tensor& tensor) {
    if (tensor.dtype() == DType::f32) return context.to_host<float>(tensor);
    std::vector<float> values;
    for (const BFloat16 value : context.to_host<BFloat16>(tensor)) {
      values.push_back(static_cast<float>(value));
    }
    return values;
  }
  // a[m, k] b[k, n], plus `more`(i, j).
  std::vector<float> product(const std::function<float(std::int64_t, std::int64_t)>& more = {}) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        float sum = more ? more(i, j) : 0;
        for (std::int64_t q = 0; q < k; ++q) sum += number(i * k + q, 1) * number(q * n + j, 2);
        values.push_back(sum);
      }
    }
    return values;
  }
  static void expect_near(const std::vector<float>& got, const std::vector<float>& want,
                          float tolerance) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << i;
  }

  void plain() {
    const Tensor c = empty({m, n});
    gemm(context, {.a = put({m, k}, 1), .b = put({k, n}, 2), .c = c});
    EXPECT_EQ(get(c), product());
  }
  void with_bias() {
    const Tensor c = empty({m, n});
    gemm(context, {.a = put({m, k}, 1), .b = put({k, n}, 2), .c = c, .bias = put({n}, 3)});
    EXPECT_EQ(get(c), product([](auto, std::int64_t j) { return number(j, 3); }));
  }
  void with_gelu(bool bias) {
    const Tensor c = empty({m, n}), saved = empty({m, n});
    gemm(context, {.a = put({m, k}, 1),
                   .b = put({k, n}, 2),
                   .c = c,
                   .bias = bias ? put({n}, 3) : Tensor(),
                   .pre_activation = saved});
    auto want = product([&](auto, std::int64_t j) { return bias ? number(j, 3) : 0.0f; });
    EXPECT_EQ(get(saved), want);
    for (float& x : want) x = static_cast<float>(gelu(x));
    expect_near(get(c), want, dtype == DType::f32 ? 1e-5f : 2e-2f);
  }
  void with_gelu_gradient() {
    const Tensor c = empty({m, n});
    gemm(context, {.a = put({m, k}, 1), .b = put({k, n}, 2), .c = c, .gelu_input = put({m, n}, 4)});
    auto want = product();
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double x = number(static_cast<std::int64_t>(i), 4), h = 1e-5;
      want[i] *= static_cast<float>((gelu(x + h) - gelu(x - h)) / (2 * h));
    }
    expect_near(get(c), want, dtype == DType::f32 ? 1e-4f : 1e-1f);
  }
  // Adds twice into the same c and bias gradient: each call must add once.
  void with_bias_gradient() {
    const Tensor c = put({m, n}, 5, DType::f32), sums = put({m}, 6, DType::f32);
    // a is stored as [k, m]; each element is number() of its place in [m, k].
    std::vector<float> a;
    for (std::int64_t q = 0; q < k; ++q) {
      for (std::int64_t i = 0; i < m; ++i) a.push_back(number(i * k + q, 1));
    }
    for (int times = 1; times <= 2; ++times) {
      gemm(context, {.a = context.from_host<float>({k, m}, a, Category::activation),
                     .b = put({k, n}, 2, DType::f32),
                     .c = c,
                     .transpose_a = true,
                     .accumulate = true,
                     .bias_gradient = sums});
      auto want = product();
      for (std::size_t i = 0; i < want.size(); ++i) {
        want[i] = static_cast<float>(times) * want[i] + number(static_cast<std::int64_t>(i), 5);
      }
      EXPECT_EQ(get(c), want) << times;
      std::vector<float> want_sums;
      for (std::int64_t i = 0; i < m; ++i) {
        float sum = 0;
        for (std::int64_t q = 0; q < k; ++q) sum += number(i * k + q, 1);
        want_sums.push_back(static_cast<float>(times) * sum + number(i, 6));
      }
      EXPECT_EQ(get(sums), want_sums) << times;
    }
  }
  // Runs the product that has the epilogue, in fp32. The bias gradient's product runs twice.
  void run(cublasLtEpilogue_t epilogue) {
    switch (epilogue) {
      case CUBLASLT_EPILOGUE_DEFAULT:
        return plain();
      case CUBLASLT_EPILOGUE_BIAS:
        return with_bias();
      case CUBLASLT_EPILOGUE_GELU_AUX:
      case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        return with_gelu(epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
      case CUBLASLT_EPILOGUE_DGELU:
        return with_gelu_gradient();
      case CUBLASLT_EPILOGUE_BGRADB:
        return with_bias_gradient();
    }
  }
  static double gelu(double x) {
    return 0.5 * x *
           (1 + std::tanh(std::sqrt(2 / 3.14159265358979324) * (x + 0.044715 * x * x * x)));
  }

  Context context;
  DType dtype;
  std::int64_t m = 24, n, k = 8;
};

constexpr KernelOptions deterministic{.deterministic = true}, fastest{.deterministic = false};
constexpr auto fused_epilogues = {CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                  CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB};

TEST_F(CudaProducts, OfADeterministicRunHaveTheFirstAlgorithmUntimed) {
  for (const auto epilogue : all_epilogues) slow_down(epilogue);
  Case products(*device, deterministic);
  for (const auto epilogue : all_epilogues) {
    emulation::reset_product_counts();
    products.run(epilogue);
    products.run(epilogue);
    EXPECT_EQ(counts(epilogue).asked, 1) << epilogue;
    EXPECT_EQ(counts(epilogue).done, (Done{epilogue == CUBLASLT_EPILOGUE_BGRADB ? 4 : 2, 0, 0}));
    EXPECT_EQ(counts(epilogue).failed, Done{}) << epilogue;
  }
}

TEST_F(CudaProducts, OfOtherRunsHaveTheFastestAlgorithmThatRuns) {
  for (const std::size_t best : {0, 1}) {
    emulation::ProductBehavior behavior{.delay = {slow, slow, slow}};
    behavior.delay[best] = {};
    emulation::set_product_behavior(CUBLASLT_EPILOGUE_DEFAULT, behavior);
    emulation::reset_product_counts();
    Case products(*device, fastest);
    products.plain();
    EXPECT_EQ(counts(CUBLASLT_EPILOGUE_DEFAULT).asked, 1);
    EXPECT_EQ(counts(CUBLASLT_EPILOGUE_DEFAULT).failed, (Done{0, 0, 1}));
    EXPECT_GT(counts(CUBLASLT_EPILOGUE_DEFAULT).done[0], 1);
    EXPECT_GT(counts(CUBLASLT_EPILOGUE_DEFAULT).done[1], 1);
    emulation::reset_product_counts();
    products.plain();
    Done want{};
    want[best] = 1;
    EXPECT_EQ(counts(CUBLASLT_EPILOGUE_DEFAULT).done, want);
    EXPECT_EQ(counts(CUBLASLT_EPILOGUE_DEFAULT).asked, 0);
  }
}

TEST_F(CudaProducts, AccumulateOnceThoughTimed) {
  for (const bool fused : {true, false}) {
    for (const auto epilogue : all_epilogues) emulation::set_product_behavior(epilogue, {});
    slow_down(fused ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BGRADB);
    Case products(*device, fastest);
    emulation::reset_product_counts();
    products.with_bias_gradient();
    // The product is timed first, then runs in one of the two ways.
    EXPECT_GT(counts(CUBLASLT_EPILOGUE_BGRADB).of_all(), 1);
    EXPECT_GT(counts(CUBLASLT_EPILOGUE_DEFAULT).of_all(), 1);
  }
  Case products(*device, fastest);
  const Tensor c = products.put({products.m, products.n}, 5);
  gemm(products.context, {.a = products.put({products.m, products.k}, 1),
                          .b = products.put({products.k, products.n}, 2),
                          .c = c,
                          .accumulate = true,
                          .bias = products.put({products.n}, 3)});
  EXPECT_GT(counts(CUBLASLT_EPILOGUE_BIAS).of_all(), 1);
  EXPECT_EQ(products.get(c), products.product([&](std::int64_t i, std::int64_t j) {
    return Case::number(i * products.n + j, 5) + Case::number(j, 3);
  }));
}

TEST_F(CudaProducts, WithARefusedEpilogueAreDoneInStepsAndNotAskedForAgain) {
  for (const KernelOptions& options : {deterministic, fastest}) {
    for (const auto epilogue : all_epilogues) {
      if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) continue;
      for (const auto refusal : {ProductRefusal::by_heuristic, ProductRefusal::by_product}) {
        refuse(epilogue, refusal);
        emulation::reset_product_counts();
        Case products(*device, options);
        products.run(epilogue);
        products.run(epilogue);
        EXPECT_EQ(counts(epilogue).asked, 1) << epilogue;
        EXPECT_EQ(counts(epilogue).done, Done{}) << epilogue;
        const int tries = counts(epilogue).of_all();
        if (refusal == ProductRefusal::by_heuristic) {
          EXPECT_EQ(tries, 0) << epilogue;
        } else if (options.deterministic) {
          EXPECT_EQ(tries, 1) << epilogue;
        }
        products.run(epilogue);
        EXPECT_EQ(counts(epilogue).of_all(), tries) << epilogue;
        EXPECT_GT(
            counts(CUBLASLT_EPILOGUE_DEFAULT).of_all() + counts(CUBLASLT_EPILOGUE_BIAS).of_all(), 0)
            << epilogue;
        refuse(epilogue, ProductRefusal::none);
      }
    }
  }
}

TEST_F(CudaProducts, ThatAreRefusedAltogetherAreAnError) {
  refuse(CUBLASLT_EPILOGUE_DEFAULT, ProductRefusal::by_heuristic);
  Case products(*device, fastest);
  try {
    products.plain();
    ADD_FAILURE();
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "cublasLt: no algorithm for a product [24, 16] of fp32");
  }
}

TEST_F(CudaProducts, AreDoneInTheFasterOfBothWays) {
  for (const auto epilogue : fused_epilogues) {
    for (const bool fused_is_slow : {false, true}) {
      for (const auto other : all_epilogues) emulation::set_product_behavior(other, {});
      if (fused_is_slow) {
        slow_down(epilogue);
      } else {
        slow_down(CUBLASLT_EPILOGUE_DEFAULT);
        slow_down(CUBLASLT_EPILOGUE_BIAS);
      }
      Case products(*device, fastest);
      products.run(epilogue);
      emulation::reset_product_counts();
      products.run(epilogue);
      const int calls = epilogue == CUBLASLT_EPILOGUE_BGRADB ? 2 : 1;
      EXPECT_EQ(counts(epilogue).of_all(), fused_is_slow ? 0 : calls) << epilogue;
      EXPECT_EQ(
          counts(CUBLASLT_EPILOGUE_DEFAULT).of_all() + counts(CUBLASLT_EPILOGUE_BIAS).of_all(),
          fused_is_slow ? calls : 0)
          << epilogue;
    }
  }
}

TEST_F(CudaProducts, DoWithoutTheFeaturesThatTheEnvironmentNames) {
  setenv("TRIDENT_CUDA_WITHOUT", "cudnn,epilogues", 1);
  Case unfused(*device, deterministic);
  for (const auto epilogue : fused_epilogues) {
    unfused.run(epilogue);
    EXPECT_EQ(counts(epilogue).asked, 0) << epilogue;
  }
  setenv("TRIDENT_CUDA_WITHOUT", "timing", 1);
  Case untimed(*device, fastest);
  for (const auto epilogue : all_epilogues) {
    emulation::reset_product_counts();
    untimed.run(epilogue);
    EXPECT_EQ(counts(epilogue).asked, 1) << epilogue;
    EXPECT_EQ(counts(epilogue).done, (Done{epilogue == CUBLASLT_EPILOGUE_BGRADB ? 2 : 1, 0, 0}));
    EXPECT_EQ(counts(epilogue).failed, Done{}) << epilogue;
  }
  setenv("TRIDENT_CUDA_WITHOUT", "no-epilogues,timings", 1);
  Case as_ever(*device, fastest);
  emulation::reset_product_counts();
  as_ever.with_gelu(false);
  EXPECT_EQ(counts(CUBLASLT_EPILOGUE_GELU_AUX).failed, (Done{0, 0, 1}));
}

// cuBLASLt requires the auxiliary matrix's rows to be a multiple of 8 elements.
TEST_F(CudaProducts, WithRowsOfOddLengthHaveNoAuxiliaryEpilogue) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t columns : {1, 4, 12, 17}) {
      Case products(*device, deterministic, dtype, columns);
      products.with_gelu(false);
      products.with_gelu(true);
      products.with_gelu_gradient();
    }
  }
  EXPECT_EQ(counts(CUBLASLT_EPILOGUE_GELU_AUX).asked, 0);
  EXPECT_EQ(counts(CUBLASLT_EPILOGUE_GELU_AUX_BIAS).asked, 0);
  EXPECT_EQ(counts(CUBLASLT_EPILOGUE_DGELU).asked, 0);
  Case products(*device, deterministic, DType::bf16, 8);
  products.with_gelu(false);
  EXPECT_EQ(counts(CUBLASLT_EPILOGUE_GELU_AUX).done, (Done{1, 0, 0}));
}

// The emulated library runs no algorithm on pointers with less alignment than promised to it.
TEST_F(CudaProducts, OfEqualSizesAndOtherAlignmentsHaveTheirOwnPlans) {
  for (const KernelOptions& options : {deterministic, fastest}) {
    Case products(*device, options, DType::bf16);
    const auto run = [&](std::int64_t offset) {
      const auto at = [&](std::int64_t rows, std::int64_t columns) {
        return products.empty({rows * columns + offset})
            .flat(offset, rows * columns)
            .view({rows, columns});
      };
      const auto filled = [&](std::int64_t rows, std::int64_t columns, int seed) {
        const Tensor x = at(rows, columns);
        products.fill(x, seed);
        return x;
      };
      const Tensor c = at(products.m, products.n), saved = at(products.m, products.n);
      gemm(products.context, {.a = filled(products.m, products.k, 1),
                              .b = filled(products.k, products.n, 2),
                              .c = c,
                              .pre_activation = saved});
      EXPECT_EQ(products.get(saved), products.product()) << offset;
    };
    emulation::reset_product_counts();
    const std::vector<std::int64_t> offsets{0, 1, 2, 4};  // 16, 2, 4 and 8 bytes
    int plans = 0;
    for (const std::int64_t offset : offsets) {
      run(offset);
      EXPECT_EQ(counts(CUBLASLT_EPILOGUE_GELU_AUX).asked, ++plans) << offset;
    }
    run(8);  // as aligned as at 0
    for (const std::int64_t offset : offsets) run(offset);
    EXPECT_EQ(counts(CUBLASLT_EPILOGUE_GELU_AUX).asked, plans);
  }
}

TEST_F(CudaProducts, InTf32AreAskedForWhereTheOperandsAreFp32) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case products(*device, {.deterministic = true, .tf32 = true}, dtype);
    emulation::reset_product_counts();
    products.plain();
    const auto counts = emulation::product_counts(CUBLASLT_EPILOGUE_DEFAULT);
    EXPECT_GT(counts.of_all(), 0);
    EXPECT_EQ(counts.in_tf32, dtype == DType::f32 ? counts.of_all() : 0);
    products.with_gelu(true);
  }
}

}  // namespace
}  // namespace trident::cuda
