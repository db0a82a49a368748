// The collectives of members that share memory: no message, no copy in between. Each member reads
// the others' buffers in group-rank order and writes results where they belong, its own buffers or
// everybody's. Arguments as in direct.h; results are equal to its to the bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel/collectives/exchange.h"

namespace trident::shared {

void all_reduce(Exchange& exchange, std::byte* data, std::int64_t n);
void reduce_scatter(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);
void reduce(Exchange& exchange, std::byte* data, std::int64_t n);
void all_gather(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);
void broadcast(Exchange& exchange, std::byte* data, std::int64_t n);
void gather(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);
void scatter(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);
void all_to_all(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);
void barrier(Exchange& exchange);

}  // namespace trident::shared
