// The entries that each file of this folder adds to the table, in the namespace of its instruction
// set. make_table() returns the complete table.
#pragma once

#include "kernels/cpu/simd/table.h"

namespace trident::cpu::simd::TRIDENT_ISA {

void set_elementwise(Table&);
void set_activation(Table&);
void set_norm(Table&);
void set_cross_entropy(Table&);
void set_dropout(Table&);
void set_attention_forward(Table&);
void set_attention_backward(Table&);
void set_attention_cached(Table&);
void set_optimizer(Table&);
void set_row_products(Table&);
void set_grouped_products(Table&);
Table make_table();

}  // namespace trident::cpu::simd::TRIDENT_ISA
