#include "parallel/topology.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace trident {

Topology make_topology(const ProcessGroup& world, const RankGrid& grid, int ranks_per_node,
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
  t.node = make(grid.node_group(rank, ranks_per_node), "node");
  t.across_nodes = make(grid.cross_node_group(rank, ranks_per_node), "across_nodes");
  if (grid.crosses_nodes(Axis::tensor, ranks_per_node)) {
    t.warnings.push_back(fmt::format(
        "tensor parallelism crosses nodes: groups of {} ranks (first: {}) with {} ranks per node; "
        "its all-reduces are the most frequent traffic, keep them inside a node",
        t.tensor.size(), fmt::join(grid.group(0, Axis::tensor), ","), ranks_per_node));
  }
  return t;
}

}  // namespace trident
