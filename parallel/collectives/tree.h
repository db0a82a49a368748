// Tree all-reduce: up a binomial tree to member 0, then down again. 2 log2 N steps, for small
// tensors; inner members send the whole data several times. 16-bit partial sums are rounded at
// every step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel/collectives/exchange.h"

namespace trident::tree {

// data [n], in place. `staging`: see staging_bytes in direct.h.
void all_reduce(Exchange& exchange, std::byte* data, std::int64_t n, std::byte* staging);

}  // namespace trident::tree
