// Which sizes fit a given memory, by the plan.
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

// "24GiB", "80 GB", "512MiB", "4096 B": a number and its unit; RequestError on anything else.
std::int64_t parse_memory(std::string_view text);

// Changes of a config, as --set takes them, and what the largest rank takes then.
struct FittingChange {
  std::vector<std::string> set;
  std::int64_t peak_bytes = 0;
  std::int64_t world_size = 0;
};

struct MemoryFit {
  std::int64_t limit = 0, peak_bytes = 0;  // of a rank: what there is, and what the largest takes
  bool fits() const { return peak_bytes <= limit; }
  // The largest micro-batch size that fits, of those that divide a rank's part of the global batch.
  std::optional<std::int64_t> micro_batch_size;
  // Where the config doesn't fit: ZeRO stages, recomputation, micro-batch sizes and, if these don't
  // do, more ranks with which it would; the smallest changes first.
  std::vector<FittingChange> changes;
};

// Of a loaded config, `limit` bytes a rank.
MemoryFit fit_memory(const Config&, const Architecture&, std::int64_t limit);
std::optional<std::int64_t> largest_micro_batch(const Config&, const Architecture&,
                                                std::int64_t limit);

// The largest rank's, with what libraries take; nothing where the config allows no schedule. If a
// rank takes more than `limit`, the result may be that rank's peak instead of the largest one.
std::optional<std::int64_t> planned_peak(
    const Config&, const Architecture&,
    std::int64_t limit = std::numeric_limits<std::int64_t>::max());

nlohmann::ordered_json fit_json(const MemoryFit&);
std::string fit_text(const MemoryFit&);

}  // namespace trident
