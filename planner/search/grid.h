// The points of a sweep: values of config keys, each with each.
//
// As text: "tp=1,2,4 schedule=1f1b,zb_h1"; as a JSON object: {"tp": [1, 2, 4], "schedule":
// ["1f1b"]}. A key is an axis of the config (dp, tp, pp), one of the short names below, or a config
// key with its dots: "model.num_layers".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "settings/config.h"

namespace trident {

struct GridKey {
  std::string name;                 // as it was given
  std::string path;                 // "pipeline.schedule"
  std::vector<std::string> values;  // as --set takes them
};

struct GridPoint {
  std::string label;             // "tp=2 pp=1"
  std::vector<std::string> set;  // overrides
};

// RequestError, "--grid: KEY: problem": no key, an unknown one, one twice, one without values, a
// value twice, more than `most` points.
std::vector<GridKey> parse_grid(std::string_view text, const Config& base,
                                std::int64_t most = 100'000);
// All combinations; those of the last key follow each other.
std::vector<GridPoint> grid_points(const std::vector<GridKey>&);

}  // namespace trident
