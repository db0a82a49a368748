// All-reduce of two members by messages: each sends the other everything and adds everything, in
// the order of ranks. One round where segments take two, and the same bytes sent; results are equal
// to direct's to the bit.
#pragma once

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::swap {

void all_reduce(Exchange& exchange, const Buffers& buffers);

}  // namespace trident::swap
