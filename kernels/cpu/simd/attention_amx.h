// Attention of bf16 tensors with AMX, in place of Leaves<BFloat16>'s where native bf16 products are
// allowed. The functions need the scratch memory of the AVX-512 ones.
#pragma once

#include "kernels/cpu/simd/table.h"

namespace trident::cpu::simd::amx {

void attention_forward(const AttentionTask<BFloat16>&, std::int64_t begin, std::int64_t end,
                       float* memory);
void attention_backward(const AttentionTask<BFloat16>&, std::int64_t begin, std::int64_t end,
                        const AttentionSums&, float* memory);

}  // namespace trident::cpu::simd::amx
