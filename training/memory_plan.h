// What a rank's ledger will show: training steps run on a planning device (core/device.h), where
// the same code takes the same memory and computes nothing.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "config/config.h"
#include "core/ledger.h"
#include "models/architecture.h"
#include "scheduler/action.h"

namespace trident {

struct MemoryPlan {
  std::array<std::int64_t, category_count> peak{};  // bytes of each category
  std::int64_t peak_total = 0;                      // highest sum over the categories
};

// Of tensor and data rank 0 of each pipeline rank, [p], and then of world rank 0, which collects
// the monitor's reports besides. `schedule` is the config's; of many micro-batches only as many are
// run as bring every rank to its peak.
std::vector<MemoryPlan> plan_memory(const Config&, const Architecture&, const Schedule& schedule);

// That of one pipeline rank, run by itself.
MemoryPlan plan_memory_of(const Config&, const Architecture&, const Schedule& schedule,
                          int pipeline);

// What a rank takes beside its ledger: its part of the process, its code and libraries.
std::int64_t library_bytes(const Config&);

}  // namespace trident
