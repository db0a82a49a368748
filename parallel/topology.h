// The process groups of one rank, each named by the property that its ranks share. Every rank of
// the world makes a topology of the same mesh, nodes and stage ends; that needs no communication.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/nodes.h"
#include "parallel/placement.h"
#include "parallel/process_group.h"

namespace trident {

// A group whose traffic is counted, under its name in metrics.jsonl.
struct TrafficGroup {
  std::string name;
  std::optional<Group> group;  // empty: all ranks, or the holders of tied weights
  ProcessGroup members;        // undefined where this rank is not a member
};

// The traffic name of a group, and the group of a traffic name. Empty where the group carries no
// traffic, or where the name belongs to another traffic group.
std::optional<std::string> traffic_name(Group group);
std::optional<Group> group_of_traffic(std::string_view name);
// The traffic name under which a process group is counted, by the group's name. A duplicate of the
// world, such as the group of the step check, counts as the world.
std::string_view traffic_of(std::string_view group_name);
// Whether this traffic runs between operations of a layer, which wait for it.
bool is_within_layers(std::string_view traffic);
// The traffic name of the ranks that share each layer.
std::string_view layer_traffic();
// All traffic names of a mesh.
std::vector<std::string> traffic_names(const Mesh&);
// The place of `rank` among the ranks that share this traffic with it.
int place_of(const Mesh&, StageEnds, std::string_view traffic, int rank);

struct Topology {
  Mesh mesh;
  StageEnds ends;
  ProcessGroup world;
  std::map<Group, ProcessGroup> groups;  // the groups that carry traffic
  // The ranks of this pipeline that hold the first and the last stage, for tied weights. Undefined
  // on other ranks; one rank where it holds both stages.
  ProcessGroup embedding;
  ProcessGroup node;                  // the ranks of this rank's node
  ProcessGroup across_nodes;          // the ranks at this rank's place on their nodes
  std::vector<std::string> warnings;  // e.g. tensor parallelism crosses nodes

  // This rank's group. Undefined where the group carries no traffic: batch, loss, groups of experts
  // in a model without them, and groups other than tensor, pipeline, shard and expert_shard where
  // they have one rank.
  const ProcessGroup& of(Group group) const;
  // Also for groups that carry no traffic of their own.
  int place(Group group) const { return mesh.place(world.rank(), group); }
  int size(Group group) const { return mesh.size(group); }
  // The ranks that hold one replica of the model together.
  int model_ranks() const;
  // Whether this rank is the first of those that share each layer, and so have the same losses.
  bool leads_layers() const;
  // This rank among the ranks that hold this part and see the same samples.
  Holder holder(const Placement& placement) const {
    return placement.holder([this](Group group) { return place(group); },
                            [this](Group group) { return size(group); });
  }

  // The first is the world, which also counts the traffic of the step check.
  std::vector<TrafficGroup> traffic_groups() const;
};

// The world ranks of the traffic group of this kind that contains `rank`.
std::vector<int> ranks_of(const Topology&, const TrafficGroup&, int rank);

// Throws RequestError if the mesh does not fill the world.
Topology make_topology(const ProcessGroup& world, const Mesh& mesh, const Nodes& nodes,
                       StageEnds ends = {});

}  // namespace trident
