// Cache keys of cuBLASLt plans and cuDNN graphs. A key holds everything that the construction of
// the plan or graph reads.
#pragma once

#include <bit>
#include <compare>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/gemm.h"

namespace trident::cuda {

// The largest power of two that divides the address, at most 16 (the widest access).
inline std::uint32_t alignment_of(const void* address) {
  return std::uint32_t{1} << std::countr_zero(reinterpret_cast<std::uintptr_t>(address) | 16);
}

struct ProductKey {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate, tf32;
  DType input, output;
  int epilogue;
  std::uint32_t align_a, align_b, align_c, align_bias, align_auxiliary;
  auto operator<=>(const ProductKey&) const = default;
};
// `epilogue` is cuBLASLt's number of the epilogue. `tf32` only matters if a and b are fp32.
inline ProductKey key_of(const Access& access, const GemmArgs& args, int epilogue, bool tf32) {
  const auto alignment = [&](const Tensor& x) {
    return alignment_of(TensorAddress::of(access, x));
  };
  return {.m = args.c.dim(0),
          .n = args.c.dim(1),
          .k = args.a.dim(args.transpose_a ? 0 : 1),
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .accumulate = args.accumulate,
          .tf32 = tf32 && args.a.dtype() == DType::f32,
          .input = args.a.dtype(),
          .output = args.c.dtype(),
          .epilogue = epilogue,
          .align_a = alignment(args.a),
          .align_b = alignment(args.b),
          .align_c = alignment(args.c),
          .align_bias = alignment(args.bias),
          .align_auxiliary = alignment(args.gelu_input ? args.gelu_input : args.pre_activation)};
}

struct AttentionKey {
  AttentionShape shape;
  std::int64_t query_row, key_row, value_row;  // elements of the rows that hold the heads
  DType dtype;
  bool backward, deterministic;
  auto operator<=>(const AttentionKey&) const = default;
};

}  // namespace trident::cuda
