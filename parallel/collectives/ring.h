// Ring all-reduce (Patarasuk and Yuan 2009): N-1 steps that reduce segments around the ring, N-1
// that gather them; each member sends 2(N-1)/N of the data. The order of additions depends on the
// segment, and 16-bit partial sums are rounded at every step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel/collectives/exchange.h"

namespace trident::ring {

// data [n], in place. `staging`: see staging_bytes in direct.h.
void all_reduce(Exchange& exchange, std::byte* data, std::int64_t n, std::byte* staging);

}  // namespace trident::ring
