// Plain data of every rank, brought to one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/context.h"
#include "parallel/process_group.h"

namespace trident {

// On rank 0 the bytes of each rank, [size][most], those behind `mine` unspecified; empty on others.
// Collective; `most`, at least the bytes of any rank, is the same on all.
std::vector<std::vector<std::uint8_t>> gather_bytes(Context&, const ProcessGroup&,
                                                    std::span<const std::uint8_t> mine,
                                                    std::size_t most);

}  // namespace trident
