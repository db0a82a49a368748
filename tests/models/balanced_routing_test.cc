#include "models/balanced_routing.h"

#include <gtest/gtest.h>

#include "core/device.h"

namespace trident {
namespace {

// Tokens of two ranks, the second of which begins in the middle.
std::vector<std::int64_t> counts(const RouterShape& shape, std::int64_t tokens) {
  const auto device = make_cpu_device();
  Context context(*device, 1);
  std::vector<float> bias;
  for (std::int64_t e = 0; e < shape.experts; ++e) bias.push_back(0.003f * static_cast<float>(e));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(shape.experts));
  for (const auto& [first, rows] :
       {std::pair{std::int64_t{0}, tokens / 3}, std::pair{tokens / 3, tokens - tokens / 3}}) {
    const Tensor chosen = context.empty({rows, shape.topk}, DType::i32, Category::activation);
    route(context,
          {.shape = shape,
           .logits = context.from_host<float>(
               {rows, shape.experts}, balanced_logits(shape, rows, first), Category::activation),
           .bias = context.from_host<float>({shape.experts}, bias, Category::activation),
           .experts = chosen,
           .weights = context.empty(chosen.shape(), DType::f32, Category::activation)});
    for (const auto e : context.to_host<std::int32_t>(chosen))
      ++counts[static_cast<std::size_t>(e)];
  }
  return counts;
}

TEST(BalancedRouting, GivesEachExpertAsManyTokens) {
  const auto even = [](std::int64_t experts, std::int64_t each) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(experts), each);
  };
  EXPECT_EQ(counts({.experts = 8, .topk = 2}, 24), even(8, 6));
  EXPECT_EQ(counts({.experts = 7, .topk = 3}, 14), even(7, 6));
  EXPECT_EQ(counts({.experts = 4, .topk = 4}, 5), even(4, 5));
  EXPECT_EQ(counts({.experts = 60, .topk = 4, .score = RouterScore::sigmoid}, 60), even(60, 4));
  // DeepSeek-V3's groups.
  EXPECT_EQ(
      counts(
          {.experts = 256, .topk = 8, .score = RouterScore::sigmoid, .groups = 8, .group_topk = 4},
          512),
      even(256, 16));
  EXPECT_EQ(counts({.experts = 12, .topk = 4, .groups = 3, .group_topk = 2}, 36), even(12, 12));
}

}  // namespace
}  // namespace trident
