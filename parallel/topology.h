// The process groups of one rank, named by what their ranks have in common.
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

// A group whose traffic counts, by the name that metrics.jsonl gives it.
struct TrafficGroup {
  std::string name;
  std::optional<Group> group;  // nothing: all ranks, or the holders of tied weights
  ProcessGroup members;        // undefined where this rank is in none
};

// The traffic of such a group, by that name; nothing where the group carries none, or the name is
// of another one.
std::optional<std::string> traffic_name(Group group);
std::optional<Group> group_of_traffic(std::string_view name);
// As what the traffic of a process group counts, by its name: that of duplicates of the world, such
// as the check of a step has, as the world's.
std::string_view traffic_of(std::string_view group_name);
// Whether it is between operations of a layer, which wait for it.
bool is_within_layers(std::string_view traffic);
// All that there are in a mesh.
std::vector<std::string> traffic_names(const Mesh&);
// The place of `rank` among those that share this traffic with it.
int place_of(const Mesh&, StageEnds, std::string_view traffic, int rank);

struct Topology {
  Mesh mesh;
  StageEnds ends;
  ProcessGroup world;
  std::map<Group, ProcessGroup> groups;  // those that carry something
  // The ranks of this pipeline that hold the first and the last stage, for tied weights. Undefined
  // on others; one rank where it holds both.
  ProcessGroup embedding;
  ProcessGroup node;                  // ranks that share this rank's node
  ProcessGroup across_nodes;          // ranks at this rank's place on their nodes
  std::vector<std::string> warnings;  // e.g. tensor parallelism crosses nodes

  // This rank's, undefined where it carries nothing: batch, loss, and replicas where nobody holds
  // the same shard.
  const ProcessGroup& of(Group group) const;
  // Of groups that carry nothing of their own, too.
  int place(Group group) const { return mesh.place(world.rank(), group); }
  int size(Group group) const { return mesh.size(group); }
  // Of those that hold this part and see the same samples.
  Holder holder(const Placement& placement) const {
    return placement.holder([this](Group group) { return place(group); },
                            [this](Group group) { return size(group); });
  }

  // What is sent for the check of a step belongs to the first, the world.
  std::vector<TrafficGroup> traffic_groups() const;
};

// The world ranks of `rank`'s such group.
std::vector<int> ranks_of(const Topology&, const TrafficGroup&, int rank);

// Throws RequestError if the mesh does not fill the world.
Topology make_topology(const ProcessGroup& world, const Mesh& mesh, const Nodes& nodes,
                       StageEnds ends = {});

}  // namespace trident
