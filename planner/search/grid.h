// The points of a sweep: all combinations of the values of some config keys.
//
// As text: "tp=1,2,4 schedule=1f1b,zb_h1"; as a JSON object: {"tp": [1, 2, 4], "schedule":
// ["1f1b"]}. A key is an axis of the config (dp, tp, pp), one of the short names in grid.cc, or a
// config key with its dots: "model.num_layers".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "settings/config.h"

namespace trident {

struct GridKey {
  std::string name;                 // as given
  std::string path;                 // "pipeline.schedule"
  std::vector<std::string> values;  // as --set takes them
};

struct GridPoint {
  std::string label;             // "tp=2 pp=1"
  std::vector<std::string> set;  // overrides
};

// Throws RequestError, "--grid: KEY: problem", for an empty grid, an unknown or repeated key, a key
// without values, a repeated value, and for more than `most` points.
std::vector<GridKey> parse_grid(std::string_view text, const ParallelConfig&,
                                std::int64_t most = 100'000);
// Returns all combinations. The last key varies fastest.
std::vector<GridPoint> grid_points(const std::vector<GridKey>&);

}  // namespace trident
