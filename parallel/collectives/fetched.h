// All-reduce of processes that may copy from each other's memory by a system call. Each fetches its
// own segment of the others' tensors and adds it, then fetches the segments that the others have
// added: two copies of a segment where a way over desks takes three, but each call costs time, so
// this is for large tensors. Results are equal to direct's to the bit, and so is the counted
// volume.
#pragma once

#include <cstdint>

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::fetched {

void all_reduce(Exchange& exchange, const Buffers& buffers);

}  // namespace trident::fetched
