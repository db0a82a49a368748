// What the interleaved schedules share: groups of micro-batches that go through a rank's chunks in
// turn.
#pragma once

#include <string>
#include <vector>

namespace trident {

struct ChunkMicrobatch {
  int chunk;
  int microbatch;
};

// The order of the chunk-forwards, the same on every rank: groups of g micro-batches through the
// chunks 0 ... v-1. Backwards take the same order with chunk v-1-chunk.
std::vector<ChunkMicrobatch> chunk_order(int microbatches, int chunks, int group_size);

// The group size: p where p divides m, else m / max(1, floor(m/p)) where that is whole, else a
// RequestError of `kind`. A given one is that or has p <= g <= m and m mod g zero or >= p.
int interleaved_group_size(const std::string& kind, int stages, int microbatches, int group_size);

}  // namespace trident
