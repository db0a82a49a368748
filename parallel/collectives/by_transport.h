// All-reduce by the transport's own, where that is faster and no order of additions is asked for.
#pragma once

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::by_transport {

// Once each member has seen that the one before it came to the same operation.
void all_reduce(Exchange& exchange, const Buffers& buffers);

}  // namespace trident::by_transport
