// The bytes that a member sends in an operation (parallel/process_group.h, Traffic). These are the
// papers' volumes, and plans count by them. Direct's volumes are here; other algorithms have theirs
// in their rows.
#pragma once

#include <cstdint>
#include <span>

#include "parallel/collectives/collective.h"
#include "parallel/collectives/descriptor.h"

namespace trident {

// The bytes that member `rank` of `size` sends. The descriptor's count is that of the member's
// input tensor: all its parts of a reduce-scatter or all-to-all, its own part of a gather. The
// descriptor's algorithm is that of a row, of `more` or built in. 0 for an all_to_all_v, whose
// volume the descriptor doesn't say.
std::int64_t bytes_sent(const Descriptor&, int size, int rank,
                        std::span<const Collective> more = {});

}  // namespace trident
