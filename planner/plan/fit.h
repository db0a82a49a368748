// Finds the sizes and config changes that fit into a given memory, by the plan
// (planner/plan/planned_rank.h). Needs no other rank and no device.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/architecture.h"
#include "settings/config.h"

namespace trident {

// Parses a number and its unit: "24GiB", "80 GB", "512MiB", "4096 B". Throws RequestError on
// anything else.
std::int64_t parse_memory(std::string_view text);

// Changes of a config, as --set takes them, and the peak of its largest rank with them.
struct FittingChange {
  std::vector<std::string> set;
  std::int64_t peak_bytes = 0;
  std::int64_t world_size = 0;
};

struct MemoryFit {
  // Bytes of a rank: the limit, and the largest rank's peak.
  std::int64_t limit = 0, peak_bytes = 0;
  bool fits() const { return peak_bytes <= limit; }
  // The largest micro-batch size that fits, among the divisors of a rank's part of the global
  // batch.
  std::optional<std::int64_t> micro_batch_size;
  // Changes with which a config that doesn't fit would fit, the smallest changes first: ZeRO
  // stages, recomputation, micro-batch sizes and, if these aren't enough, more ranks.
  std::vector<FittingChange> changes;
};

// Both need a loaded config; `limit` is in bytes per rank.
MemoryFit fit_memory(const Config&, const Architecture&, std::int64_t limit);
std::optional<std::int64_t> largest_micro_batch(const Config&, const Architecture&,
                                                std::int64_t limit);

// Returns the peak bytes of the largest rank, libraries included; nothing where the config allows
// no schedule. If a rank takes more than `limit`, the result may be that rank's peak instead of the
// largest one.
std::optional<std::int64_t> planned_peak(
    const Config&, const Architecture&,
    std::int64_t limit = std::numeric_limits<std::int64_t>::max());

nlohmann::ordered_json fit_json(const MemoryFit&);
std::string fit_text(const MemoryFit&);

}  // namespace trident
