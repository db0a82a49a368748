// Tree all-reduce: values are reduced up a binomial tree to member 0, and the result goes down
// again. It takes 2 log2 N steps and is for small tensors; inner members send the complete data
// several times. 16-bit partial sums are rounded at every step.
#pragma once

#include <cstdint>

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::tree {

void all_reduce(Exchange& exchange, const Buffers& buffers);
std::int64_t all_reduce_staging(const CollectiveCase&);
std::int64_t all_reduce_sent(const CollectiveCase&);

}  // namespace trident::tree
