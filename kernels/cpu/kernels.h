// The CPU implementation of kernels/*.h: stream work, run by the stream's thread and the context's
// team. Entries as in kernels/backend.h.
#pragma once

#include "kernels/backend.h"

namespace trident::cpu {

std::string instructions();
#define TRIDENT_KERNEL(name, ...) void name(__VA_ARGS__);
#define TRIDENT_OPTIONAL_KERNEL(name, ...)
#include "kernels/kernel_list.inc"

// Take the workspace that the functions of these names work in, and touch no tensor.
void reserve_gemm(const Access&, Context&, const GemmArgs&);
void reserve_attention_forward(const Access&, Context&, const AttentionArgs&);
void reserve_attention_backward(const Access&, Context&, const AttentionBackwardArgs&);
void reserve_attention_cached(const Access&, Context&, const CacheArgs&, const Tensor& out);
void reserve_rotary(const Access&, Context&, const RotaryArgs&);
void reserve_adafactor_squares(const Access&, Context&, const AdafactorSquares&);
void reserve_adafactor_size(const Access&, Context&, const AdafactorSize&);

}  // namespace trident::cpu
