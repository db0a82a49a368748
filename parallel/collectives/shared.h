// The collectives of members that share an address space: no message, no copy in between. Each
// member reads the others' buffers in group-rank order and writes results where they belong, its
// own buffers or everybody's. Results are equal to direct's to the bit.
#pragma once

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::shared {

void all_reduce(Exchange& exchange, const Buffers& buffers);
void reduce_scatter(Exchange& exchange, const Buffers& buffers);
void reduce(Exchange& exchange, const Buffers& buffers);
void all_gather(Exchange& exchange, const Buffers& buffers);
void broadcast(Exchange& exchange, const Buffers& buffers);
void gather(Exchange& exchange, const Buffers& buffers);
void scatter(Exchange& exchange, const Buffers& buffers);
void all_to_all(Exchange& exchange, const Buffers& buffers);
void barrier(Exchange& exchange, const Buffers& buffers);

}  // namespace trident::shared
