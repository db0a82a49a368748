// Direct algorithms: members exchange parts with each other at once, by messages, and the member
// that owns an element reduces it in group-rank order. The volume is that of a ring. The result
// depends on neither timing nor transport.
#pragma once

#include <cstdint>

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::direct {

// A reduce-scatter of segments, then an all-gather.
void all_reduce(Exchange& exchange, const Buffers& buffers);
void reduce_scatter(Exchange& exchange, const Buffers& buffers);
void reduce(Exchange& exchange, const Buffers& buffers);
void all_gather(Exchange& exchange, const Buffers& buffers);
void broadcast(Exchange& exchange, const Buffers& buffers);
void gather(Exchange& exchange, const Buffers& buffers);
void scatter(Exchange& exchange, const Buffers& buffers);
void all_to_all(Exchange& exchange, const Buffers& buffers);
void all_to_all_v(Exchange& exchange, const Buffers& buffers);
// A dissemination barrier in log2 N rounds.
void barrier(Exchange& exchange, const Buffers& buffers);

// Staging memory for the other members' parts, where they can't be read in the sender's memory.
std::int64_t all_reduce_staging(const CollectiveCase&);
std::int64_t reduce_scatter_staging(const CollectiveCase&);
std::int64_t reduce_staging(const CollectiveCase&);

}  // namespace trident::direct
