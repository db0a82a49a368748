// Loops over bf16 by native products, for processors and contexts that allow them: AMX tiles, or
// the vectors of AVX-512 BF16. Both are compiled from the same files. The functions run in the
// calling thread.
#pragma once

#include "kernels/cpu/simd/table.h"

namespace trident::cpu::simd {

struct Bf16Loops {
  // Those of Leaves<BFloat16>, with the scratch memory of the AVX-512 loops.
  void (*attention_forward)(const AttentionTask<BFloat16>&, std::int64_t begin, std::int64_t end,
                            float* memory);
  void (*attention_backward)(const AttentionTask<BFloat16>&, std::int64_t begin, std::int64_t end,
                             const AttentionSums&, float* memory);

  // Products of rows, for a mixture of experts: c (m, n) (+)= a b, with sums in fp32. `a` (m, k)
  // has rows of bf16, a_row apart, `b` pairs (k / 2, n) as the functions below make them. m and n
  // are multiples of 16, k of 32; c has rows of n.
  void (*products)(const BFloat16* a, std::int64_t a_row, const std::uint32_t* b, float* c,
                   std::int64_t m, std::int64_t n, std::int64_t k, bool add);
  // A right operand of n columns, from n' <= n rows of k' terms that become columns, or from k'
  // rows of n' columns; the rest are zeros, to n, a multiple of 16, and to whole steps of 32 terms.
  void (*pack_right_transposed)(Rows<const BFloat16> from, std::int64_t rows, std::int64_t n,
                                std::int64_t k, std::uint32_t* to);
  void (*pack_right)(Rows<const BFloat16> from, std::int64_t k, std::int64_t columns,
                     std::uint32_t* to);
  // A left operand of rounded up to 16 `rows`, of `to_row` terms, from k rows that become columns.
  void (*pack_left_transposed)(Rows<const BFloat16> from, std::int64_t k, std::int64_t rows,
                               BFloat16* to, std::int64_t to_row);
};

namespace amx {
extern const Bf16Loops bf16_loops;
}
namespace avx512_bf16 {
extern const Bf16Loops bf16_loops;
}

}  // namespace trident::cpu::simd
