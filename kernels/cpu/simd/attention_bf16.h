// Attention of bf16 tensors by native products, compiled for AMX and for AVX-512 BF16.
#pragma once

#include "kernels/cpu/simd/table.h"

namespace trident::cpu::simd::TRIDENT_ISA {

void attention_forward(const AttentionTask<BFloat16>&, std::int64_t begin, std::int64_t end,
                       float* memory);
void attention_backward(const AttentionTask<BFloat16>&, std::int64_t begin, std::int64_t end,
                        const AttentionSums&, float* memory);

}  // namespace trident::cpu::simd::TRIDENT_ISA
