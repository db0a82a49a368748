// Micro-batches to measure with.
#pragma once

#include <cstdint>
#include <vector>

#include "datasets/batch_sampler.h"
#include "settings/config.h"

namespace trident {

// Of one copy of the model in a step, tokens by chance.
std::vector<HostMicroBatch> synthetic_batches(const Config&, std::uint64_t seed);

}  // namespace trident
