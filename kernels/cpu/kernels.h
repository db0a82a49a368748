// The CPU implementation of kernels/*.h, with the entries of kernels/backend.h. Called inside
// stream work; each function runs in the stream's thread and on the context's team, and returns
// when the result is complete.
#pragma once

#include "kernels/backend.h"

namespace trident::cpu {

std::string instructions();
#define TRIDENT_KERNEL(name, ...) void name(__VA_ARGS__);
#define TRIDENT_OPTIONAL_KERNEL(name, ...)
#include "kernels/kernel_list.inc"

// Allocate the workspace that the functions of these names would need, and touch no tensor. For a
// planning device.
void reserve_gemm(const Access&, Context&, const GemmArgs&);
void reserve_routing_sums(const Access&, Context&, const RoutingSumsArgs&);
void reserve_grouped_gemm(const Access&, Context&, const GroupedGemmArgs&);
void reserve_grouped_weight_gemm(const Access&, Context&, const GroupedWeightGemmArgs&);
void reserve_attention_forward(const Access&, Context&, const AttentionArgs&);
void reserve_attention_backward(const Access&, Context&, const AttentionBackwardArgs&);
void reserve_attention_cached(const Access&, Context&, const CacheArgs&, const Tensor& out);
void reserve_rotary(const Access&, Context&, const RotaryArgs&);
void reserve_adafactor_squares(const Access&, Context&, const AdafactorSquares&);
void reserve_adafactor_size(const Access&, Context&, const AdafactorSize&);

}  // namespace trident::cpu
