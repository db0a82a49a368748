// A sweep's grid, as words or JSON. It has one point for each combination of its values, and no
// point twice.
#include <set>

#include "fuzz/fuzzing.h"
#include "planner/search/grid.h"

namespace trident::fuzzing {

void fuzz_grid(std::string_view input) {
  const Config base;
  std::vector<GridKey> keys;
  if (!accepted([&] { keys = parse_grid(input, base.parallel, 1000); })) return;
  std::size_t combinations = 1;
  for (const GridKey& key : keys) combinations *= key.values.size();
  const std::vector<GridPoint> points = grid_points(keys);
  require(points.size() == combinations && combinations <= 1000, "each value comes with each");
  std::set<std::vector<std::string>> sets;
  for (const GridPoint& point : points) {
    require(point.set.size() == keys.size(), "a point has a value of each key");
    sets.insert(point.set);
  }
  require(sets.size() == points.size(), "no point comes twice");
}

}  // namespace trident::fuzzing
