// Gathers plain data of every rank on rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/context.h"
#include "parallel/process_group.h"

namespace trident {

// Returns the bytes of each rank, [size][most], on rank 0, and an empty list on other ranks. The
// bytes after a rank's `mine` are unspecified. Collective over the group. `most` is the same on all
// ranks, and at least the size of each rank's `mine`.
std::vector<std::vector<std::uint8_t>> gather_bytes(Context&, const ProcessGroup&,
                                                    std::span<const std::uint8_t> mine,
                                                    std::size_t most);

}  // namespace trident
