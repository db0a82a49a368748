// Makes micro-batches of random tokens for measurements.
#pragma once

#include <cstdint>
#include <vector>

#include "datasets/batch_sampler.h"
#include "settings/config.h"

namespace trident {

// The micro-batches of one data-parallel replica in one step. Equal seeds give equal tokens.
std::vector<HostMicroBatch> synthetic_batches(const Config&, std::uint64_t seed);

}  // namespace trident
