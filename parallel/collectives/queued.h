// The collectives of members whose GPUs a library connects (parallel/collectives/communicator.h).
// The hosts compare their descriptors when they come to an operation; the data moves in the queues.
// In deterministic mode, or where the library can't do the reduction, the members exchange segments
// and add them here in group-rank order. The results are then bitwise identical to direct's.
#pragma once

#include <cstdint>

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::queued {

void all_reduce(Exchange& exchange, const Buffers& buffers);
void reduce_scatter(Exchange& exchange, const Buffers& buffers);
void reduce(Exchange& exchange, const Buffers& buffers);
void all_gather(Exchange& exchange, const Buffers& buffers);
void broadcast(Exchange& exchange, const Buffers& buffers);
void gather(Exchange& exchange, const Buffers& buffers);
void scatter(Exchange& exchange, const Buffers& buffers);
void all_to_all(Exchange& exchange, const Buffers& buffers);
void all_to_all_v(Exchange& exchange, const Buffers& buffers);

// Staging memory for the other members' parts, where they are added here.
std::int64_t all_reduce_staging(const CollectiveCase&);
std::int64_t reduce_scatter_staging(const CollectiveCase&);
std::int64_t reduce_staging(const CollectiveCase&);

}  // namespace trident::queued
