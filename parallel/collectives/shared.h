// The collectives of members that share an address space, without messages and intermediate copies.
// Each member reads the others' buffers in group-rank order and writes results to their
// destinations, in its own buffers or in every member's. The results are bitwise identical to
// direct's.
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
void all_to_all_v(Exchange& exchange, const Buffers& buffers);
void barrier(Exchange& exchange, const Buffers& buffers);

}  // namespace trident::shared
