// All-reduce of members on several hosts, some with several members that are neighbours in the
// group: the running value of an element goes from host to host in group-rank order, in the
// accumulator's type, and its result back. So it crosses each link once each way, where
// direct::all_reduce sends it once for each member of a host; the bits are the same.
#pragma once

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::carried {

// In direct::all_reduce's staging. For a group with Membership::runs.
void all_reduce(Exchange& exchange, const Buffers& buffers);

}  // namespace trident::carried
