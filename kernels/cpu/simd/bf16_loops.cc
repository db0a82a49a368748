#include "kernels/cpu/simd/bf16_loops.h"

#include "kernels/cpu/simd/attention_bf16.h"
#include "kernels/cpu/simd/bf16_products.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

void products(const BFloat16* a, std::int64_t a_row, const std::uint32_t* b, float* c,
              std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  const ProductScope scope;
  product({a, a_row, b, n, c, n}, m, n, k, add);
}

void pack_right_transposed(Rows<const BFloat16> from, std::int64_t rows, std::int64_t n,
                           std::int64_t k, std::uint32_t* to) {
  pack_columns(from, rows, n, k, to);
}

void pack_right(Rows<const BFloat16> from, std::int64_t k, std::int64_t columns,
                std::uint32_t* to) {
  pack_pairs(from, k, whole_terms(k), columns, to);
}

void pack_left_transposed(Rows<const BFloat16> from, std::int64_t k, std::int64_t rows,
                          BFloat16* to, std::int64_t to_row) {
  pack_transposed(from, 0, k, whole_terms(k), rows, 1, to, to_row);
}

}  // namespace

const Bf16Loops bf16_loops{attention_forward,     attention_backward, products,
                           pack_right_transposed, pack_right,         pack_left_transposed};

}  // namespace trident::cpu::simd::TRIDENT_ISA
