// All-reduce of two members by messages: each sends the other its complete tensor, and both add
// everything in the order of ranks. It takes one round where segments take two, and sends the same
// number of bytes. The results are bitwise identical to direct's.
#pragma once

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::swap {

void all_reduce(Exchange& exchange, const Buffers& buffers);

}  // namespace trident::swap
