// Gives each expert as many tokens, whatever the router has learnt, for measurements (Megatron-LM's
// moe_router_force_load_balancing).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/routing.h"

namespace trident {

// Logits (rows, E) with which token first_row + t takes K experts in turn, so that E tokens in a
// row give each expert K of them. With groups, whose topk must divide K for that, the tokens take
// the groups in turn, and of each group its experts.
std::vector<float> balanced_logits(const RouterShape&, std::int64_t rows, std::int64_t first_row);

}  // namespace trident
