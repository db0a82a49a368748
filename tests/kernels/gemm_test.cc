#include "kernels/gemm.h"

#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

using GemmTest = KernelTest;

struct Size {
  std::int64_t m, n, k;
};

TEST_P(GemmTest, MatchesTheReferenceForEveryFlagAndOddSizes) {
  for (const auto& [m, n, k] :
       {Size{1, 1, 1}, Size{3, 17, 65}, Size{65, 3, 17}, Size{17, 257, 3}, Size{65, 64, 257}}) {
    for (int flags = 0; flags < 16; ++flags) {
      const bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4, with_bias = flags & 8;
      const Values a = random(m * k, "a"), b = random(k * n, "b"), bias = random(n, "bias");
      Values want = reference::gemm(a, b, m, n, k, ta, tb);
      for (const DType output : {dtype, DType::f32}) {
        const Values c = random_of(output, m * n, "c");
        Values sum = want;
        for (std::int64_t i = 0; i < m * n; ++i) {
          if (accumulate) reference::at(sum, i) += reference::at(c, i);
          if (with_bias) reference::at(sum, i) += reference::at(bias, i % n);
        }
        const Tensor out = put_as(output, c, {m, n});
        gemm(context, {.a = put(a, ta ? Shape{k, m} : Shape{m, k}),
                       .b = put(b, tb ? Shape{n, k} : Shape{k, n}),
                       .c = out,
                       .transpose_a = ta,
                       .transpose_b = tb,
                       .accumulate = accumulate,
                       .bias = with_bias ? put(bias, {n}) : Tensor()});
        // bf16 inputs are exact, so an fp32 result is as good as from fp32 inputs.
        expect_near(out, sum, "c", output == DType::f32 ? 2e-6 : tolerance);
      }
    }
  }
}

TEST_P(GemmTest, GivesTheSameBitsEachTime) {
  const Values a = random(257 * 129, "a"), b = random(129 * 65, "b");
  Values first;
  for (int i = 0; i < 3; ++i) {
    const Tensor c = empty_f32({257, 65});
    gemm(context, {.a = put(a, {257, 129}), .b = put(b, {65, 129}), .c = c, .transpose_b = true});
    const Values got = get(c);
    if (i == 0) first = got;
    EXPECT_EQ(got, first);
  }
}

TEST_P(GemmTest, OverwritesWhateverCHeld) {
  const Tensor c = put_as(DType::f32, Values(6, NAN), {2, 3});
  gemm(context, {.a = put({1, 2}, {2, 1}), .b = put({1, 1, 1}, {1, 3}), .c = c});
  EXPECT_EQ(get(c), (Values{1, 1, 1, 2, 2, 2}));
}

TEST_P(GemmTest, NamesWrongShapesAndTypes) {
  const Tensor a = empty({3, 4}), b = empty({4, 5});
  const auto message = [&](const GemmArgs& args) -> std::string {
    try {
      gemm(context, args);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.a = a, .b = b, .c = empty({3, 4})}).find("gemm: got c [3, 4]"), 0u);
  EXPECT_NE(message({.a = a, .b = b, .c = empty({3, 5}), .transpose_b = true}).find("b [4, 5]"),
            std::string::npos);
  EXPECT_NE(message({.a = a, .b = b, .c = {}}).find("no c"), std::string::npos);
  EXPECT_NE(message({.a = a,
                     .b = context.empty({4, 5}, DType::f16, Category::activation),
                     .c = empty({3, 5})})
                .find("fp16"),
            std::string::npos);
  EXPECT_NE(message({.a = a, .b = b, .c = empty({3, 5}), .bias = empty({4})}).find("bias [4]"),
            std::string::npos);
}

TRIDENT_KERNEL_SUITE(GemmTest);

}  // namespace
}  // namespace trident
