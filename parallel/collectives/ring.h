// Ring all-reduce (Patarasuk and Yuan 2009): N-1 steps reduce segments around the ring, and N-1
// steps gather them. Each member sends 2(N-1)/N of the data. The order of additions depends on the
// segment, and 16-bit partial sums are rounded at every step.
#pragma once

#include <cstdint>

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::ring {

void all_reduce(Exchange& exchange, const Buffers& buffers);
std::int64_t all_reduce_staging(const CollectiveCase&);
std::int64_t all_reduce_sent(const CollectiveCase&);

}  // namespace trident::ring
