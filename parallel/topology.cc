#include "parallel/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace trident {
namespace {

constexpr const char* embedding_name = "embedding";

}  // namespace

std::vector<TrafficGroup> Topology::traffic_groups() const {
  std::vector<TrafficGroup> groups{{"world", {}, world},
                                   {"tensor", Group::tensor, tensor},
                                   {"pipeline", Group::pipeline, pipeline},
                                   {"data", Group::shard, shard},
                                   {embedding_name, {}, embedding}};
  if (size(Group::replicas) > 1) groups.push_back({"replicas", Group::replicas, replicas});
  return groups;
}

std::vector<int> ranks_of(const Topology& topology, const TrafficGroup& group, int rank) {
  if (group.group) return topology.mesh.group(rank, *group.group);
  if (group.name == embedding_name) return topology.mesh.embedding_group(rank, topology.ends);
  std::vector<int> all(static_cast<std::size_t>(topology.mesh.world_size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Topology make_topology(const ProcessGroup& world, const Mesh& mesh, const Nodes& nodes,
                       StageEnds ends) {
  if (world.size() != mesh.world_size()) {
    throw RequestError(fmt::format("the world has {} ranks; {} needs {}", world.size(),
                                   text_of(mesh.axes()), mesh.world_size()));
  }
  const int rank = world.rank();
  const auto make = [&](const std::vector<int>& ranks, const char* name) {
    return world.subgroup(ranks, name);
  };
  Topology t{mesh, ends, world, {}, {}, {}, {}, {}, {}, {}, {}};
  t.tensor = make(mesh.group(rank, Group::tensor), "tensor");
  t.pipeline = make(mesh.group(rank, Group::pipeline), "pipeline");
  t.shard = make(mesh.group(rank, Group::shard), "data");
  if (t.size(Group::replicas) > 1) {
    t.replicas = make(mesh.group(rank, Group::replicas), "replicas");
  }
  const std::vector<int> holders = mesh.embedding_group(rank, ends);
  if (std::find(holders.begin(), holders.end(), rank) != holders.end()) {
    t.embedding = make(holders, embedding_name);
  }
  t.node = make(nodes.inside(rank), "node");
  t.across_nodes = make(nodes.across(rank), "across_nodes");
  if (const auto across = nodes.groups_across(mesh, Group::tensor); !across.empty()) {
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
