#include "kernels/cpu/simd/leaves.h"

namespace trident::cpu::simd::TRIDENT_ISA {

Table make_table() {
  Table table{};
  table.isa = Isa::TRIDENT_ISA;
  set_elementwise(table);
  set_activation(table);
  set_norm(table);
  set_cross_entropy(table);
  set_dropout(table);
  set_attention_forward(table);
  set_attention_backward(table);
  set_attention_cached(table);
  set_optimizer(table);
  set_row_products(table);
  set_grouped_products(table);
  return table;
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
