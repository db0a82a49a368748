// All-reduce of members on several hosts, some of which have several members that are neighbours in
// the group. The running value of an element travels from host to host in group-rank order, in the
// accumulator's type, and its result travels back. Each value therefore crosses each link once in
// each direction, where direct::all_reduce sends it once for each member of a host. The results are
// bitwise identical.
#pragma once

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::carried {

// Works in direct::all_reduce's staging. Requires a group with Membership::runs.
void all_reduce(Exchange& exchange, const Buffers& buffers);

}  // namespace trident::carried
