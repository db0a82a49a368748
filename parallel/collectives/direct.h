// Direct algorithms: members exchange parts with each other at once, and every element is reduced
// in group-rank order by the member that owns it. The volume is a ring's; the result depends on
// neither timing nor transport.
//
// n: elements of the member's own part, N: members. Buffers named `staging` are used only where the
// endpoint needs them; see staging_bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel/collectives/exchange.h"

namespace trident::direct {

// data [n], in place. Reduce-scatter of segments, then all-gather.
void all_reduce(Exchange& exchange, std::byte* data, std::int64_t n, std::byte* staging);
// input [n * N], output [n].
void reduce_scatter(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n,
                    std::byte* staging);
// data [n]; the root's becomes the reduction.
void reduce(Exchange& exchange, std::byte* data, std::int64_t n, std::byte* staging);
// input [n], output [n * N].
void all_gather(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);
void broadcast(Exchange& exchange, std::byte* data, std::int64_t n);
// input [n], output [n * N] on the root, null elsewhere.
void gather(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);
// input [n * N] on the root, null elsewhere, output [n].
void scatter(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);
// input and output [n * N].
void all_to_all(Exchange& exchange, const std::byte* input, std::byte* output, std::int64_t n);
// Dissemination, log2 N rounds.
void barrier(Exchange& exchange);

}  // namespace trident::direct

namespace trident {

// Bytes of staging that member `rank` of `size` needs for an operation where the endpoint cannot
// show a message in the sender's memory. `n` as above; `algorithm` is all_reduce's.
std::size_t staging_bytes(Operation operation, Algorithm algorithm, std::int64_t n, DType dtype,
                          int rank, int size, int root);

}  // namespace trident
