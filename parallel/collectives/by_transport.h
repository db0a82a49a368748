// All-reduce by the transport's own implementation, for cases where that is faster and the order of
// additions is free.
#pragma once

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::by_transport {

// Starts once each member has verified that the member before it came to the same operation.
void all_reduce(Exchange& exchange, const Buffers& buffers);

}  // namespace trident::by_transport
