// All-reduce of processes that may copy from each other's memory by a system call. Each process
// fetches its own segment of the others' tensors and adds it, then fetches the segments that the
// others have added. That takes two copies of a segment, where shared-memory slots take three. Each
// call costs time, however, so this is for large tensors. The results are bitwise identical to
// direct's, and the counted volume is the same.
#pragma once

#include <cstdint>

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::fetched {

void all_reduce(Exchange& exchange, const Buffers& buffers);

}  // namespace trident::fetched
