// Plans and graphs are made once for a shape, and again if any property that they depend on
// changes.
#include "kernels/cuda/keys.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "core/context.h"
#include "kernels/cuda_device.h"

namespace trident::cuda {
namespace {

TEST(CudaKeys, AProductsDependOnShapesModesAndAlignmentsAlone) {
  const auto device = make_cuda_device(0);
  Context context(*device, 1);
  const auto made = [&](std::int64_t rows, std::int64_t columns, DType dtype = DType::bf16) {
    return context.empty({rows, columns}, dtype, Category::workspace);
  };
  const auto key = [&](const GemmArgs& args, int epilogue = 1, bool tf32 = false) {
    ProductKey found{};
    context.stream().enqueue(
        [&](const Access& access) { found = key_of(access, args, epilogue, tf32); });
    return found;
  };
  const GemmArgs usual{.a = made(16, 16), .b = made(16, 16), .c = made(16, 16)};
  // Other tensors of these shapes use the same plan.
  EXPECT_EQ(key(usual), key({.a = made(16, 16), .b = made(16, 16), .c = made(16, 16)}));

  std::set<ProductKey> keys = {key(usual)};
  std::size_t count = 1;
  const auto differs = [&](const char* what, const std::function<void(GemmArgs&)>& change,
                           int epilogue = 1, bool tf32 = false) {
    GemmArgs args = usual;
    change(args);
    keys.insert(key(args, epilogue, tf32));
    EXPECT_EQ(keys.size(), ++count) << what;
  };
  const auto as_it_is = [](GemmArgs&) {};
  differs("m", [&](GemmArgs& x) { x.a = made(8, 16), x.c = made(8, 16); });
  differs("n", [&](GemmArgs& x) { x.b = made(16, 8), x.c = made(16, 8); });
  differs("k", [&](GemmArgs& x) { x.a = made(16, 8), x.b = made(8, 16); });
  differs("transpose_a", [](GemmArgs& x) { x.transpose_a = true; });
  differs("transpose_b", [](GemmArgs& x) { x.transpose_b = true; });
  differs("accumulate", [](GemmArgs& x) { x.accumulate = true; });
  differs("the output's dtype", [&](GemmArgs& x) { x.c = made(16, 16, DType::f32); });
  differs("the inputs' dtype", [&](GemmArgs& x) { x.a = x.b = x.c = made(16, 16, DType::f16); });
  differs("the epilogue", as_it_is, 2);
  const auto in_fp32 = [&](GemmArgs& x) { x.a = x.b = x.c = made(16, 16, DType::f32); };
  differs("fp32", in_fp32);
  differs("tf32", in_fp32, 1, true);
  EXPECT_EQ(key(usual, 1, true), key(usual, 1, false));  // tf32 doesn't apply to 16 bits
  // The rows of this tensor don't begin at a multiple of 16 bytes.
  const Tensor shifted = made(17, 1).flat(1, 16);
  const auto at_two_bytes = [&](Tensor& x) { x = made(17, 16).flat(1, 256).view({16, 16}); };
  differs("alignment of a", [&](GemmArgs& x) { at_two_bytes(x.a); });
  differs("alignment of b", [&](GemmArgs& x) { at_two_bytes(x.b); });
  differs("alignment of c", [&](GemmArgs& x) { at_two_bytes(x.c); });
  differs("alignment of the bias", [&](GemmArgs& x) { x.bias = shifted; });
  differs("alignment of the saved values", [&](GemmArgs& x) { at_two_bytes(x.pre_activation); });
}

TEST(CudaKeys, AnAttentionsDifferForEachExtentAndMode) {
  const AttentionKey usual{
      .shape = {.batch = 2, .sequence = 64, .heads = 4, .groups = 2, .head_dim = 64},
      .query_row = 512,
      .key_row = 512,
      .value_row = 512,
      .dtype = DType::bf16,
      .backward = false,
      .deterministic = true};
  EXPECT_EQ(usual, AttentionKey(usual));
  std::set<AttentionKey> keys = {usual};
  const std::vector<std::function<void(AttentionKey&)>> changes = {
      [](AttentionKey& x) { x.shape.batch = 3; },
      [](AttentionKey& x) { x.shape.sequence = 65; },
      [](AttentionKey& x) { x.shape.heads = 8; },
      [](AttentionKey& x) { x.shape.groups = 4; },
      [](AttentionKey& x) { x.shape.head_dim = 32; },
      [](AttentionKey& x) { x.shape.value_head_dim = 32; },
      [](AttentionKey& x) { x.query_row = 513; },
      [](AttentionKey& x) { x.key_row = 513; },
      [](AttentionKey& x) { x.value_row = 513; },
      [](AttentionKey& x) { x.dtype = DType::f16; },
      [](AttentionKey& x) { x.backward = true; },
      [](AttentionKey& x) { x.deterministic = false; }};
  for (const auto& change : changes) {
    AttentionKey key = usual;
    change(key);
    keys.insert(key);
  }
  EXPECT_EQ(keys.size(), changes.size() + 1);
}

TEST(CudaKeys, AnAlignmentIsAPowerOfTwoUpTo16) {
  const auto at = [](std::uintptr_t address) {
    return alignment_of(reinterpret_cast<void*>(address));
  };
  EXPECT_EQ(at(256), 16u);
  EXPECT_EQ(at(8), 8u);
  EXPECT_EQ(at(4), 4u);
  EXPECT_EQ(at(6), 2u);
  EXPECT_EQ(at(7), 1u);
  EXPECT_EQ(at(0), 16u);
}

}  // namespace
}  // namespace trident::cuda
