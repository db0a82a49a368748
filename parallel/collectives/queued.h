// The collectives of members whose GPUs a library connects (communicator.h). The hosts compare
// their descriptors as they come to an operation; the data moves in the queues. Arguments as in
// direct.h. Where order matters (deterministic mode) or the library has no such reduction, segments
// are exchanged and added here, in group-rank order, with the same bits as direct.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel/collectives/exchange.h"

namespace trident::queued {

void all_reduce(Exchange& exchange, std::byte* data, std::int64_t n, std::byte* staging);
void reduce_scatter(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n,
                    std::byte* staging);
void reduce(Exchange& exchange, std::byte* data, std::int64_t n, std::byte* staging);
void all_gather(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);
void broadcast(Exchange& exchange, std::byte* data, std::int64_t n);
void gather(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);
void scatter(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);
void all_to_all(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);

}  // namespace trident::queued
