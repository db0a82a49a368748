// What a member sends in an operation (parallel/process_group.h, Traffic): the papers' volumes, by
// which plans count. Those of direct are here, those of other algorithms in their rows.
#pragma once

#include <cstdint>
#include <span>

#include "parallel/collectives/collective.h"
#include "parallel/collectives/descriptor.h"

namespace trident {

// Bytes that member `rank` of `size` sends. The descriptor's count is of the tensor that the member
// gives: all its parts of a reduce-scatter or all-to-all, its own of a gather. Its algorithm is
// that of a row, of `more` or built in.
std::int64_t bytes_sent(const Descriptor&, int size, int rank,
                        std::span<const Collective> more = {});

}  // namespace trident
