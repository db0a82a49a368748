#include "parallel/topology.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace trident {

Topology make_topology(const ProcessGroup& world, const RankGrid& grid, const Nodes& nodes,
                       StageEnds ends) {
  if (world.size() != grid.world_size()) {
    throw RequestError(fmt::format("the world has {} ranks; dp {} x tp {} x pp {} needs {}",
                                   world.size(), grid.size(Axis::data), grid.size(Axis::tensor),
                                   grid.size(Axis::pipeline), grid.world_size()));
  }
  const int rank = world.rank();
  const auto make = [&](const std::vector<int>& ranks, const char* name) {
    return world.subgroup(ranks, name);
  };
  Topology t{grid, grid.coordinates(rank), world, {}, {}, {}, {}, {}, {}, {}};
  t.tensor = make(grid.group(rank, Axis::tensor), "tensor");
  t.pipeline = make(grid.group(rank, Axis::pipeline), "pipeline");
  t.data = make(grid.group(rank, Axis::data), "data");
  const std::vector<int> holders = grid.embedding_group(rank, ends.first, ends.last);
  if (std::find(holders.begin(), holders.end(), rank) != holders.end()) {
    t.embedding = make(holders, "embedding");
  }
  t.node = make(nodes.inside(rank), "node");
  t.across_nodes = make(nodes.across(rank), "across_nodes");
  if (const auto across = nodes.groups_across(grid, Axis::tensor); !across.empty()) {
    t.warnings.push_back(fmt::format(
        "tensor parallelism crosses nodes: {} of {} groups of {} ranks do (the first is {}; nodes: "
        "{}); its all-reduces are the most frequent traffic, keep them inside a node: start the "
        "ranks node after node (mpirun --map-by slot), a multiple of {} on each",
        across.size(), world.size() / t.tensor.size(), t.tensor.size(),
        fmt::join(across.front(), ","), nodes.text(), t.tensor.size()));
  }
  return t;
}

}  // namespace trident
