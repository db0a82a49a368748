// Which ranks of a world share a node: as the transport found it, or as runtime.ranks_per_node
// plays it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "parallel/mesh.h"

namespace trident {

class Nodes {
 public:
  // Ranks r with equal r / ranks_per_node share one; the last may be short of ranks. RequestError
  // for a number below 1.
  static Nodes consecutive(int world, int ranks_per_node);
  // `node_of` has a number for each world rank; ranks with equal numbers share a node.
  static Nodes found(std::vector<int> node_of);

  int world_size() const { return world_; }
  // Equal for ranks that share a node, otherwise arbitrary.
  int of(int rank) const;
  // Ranks of `rank`'s node, ascending.
  std::vector<int> inside(int rank) const;
  // The ranks that have `rank`'s place in their nodes, ascending; nodes that are too small have
  // none.
  std::vector<int> across(int rank) const;
  // "ranks 0 to 3 | 4 to 7"; of many nodes only the first ones.
  std::string text() const;

  // The groups of this kind that span two nodes or more.
  std::vector<std::vector<int>> groups_across(const Mesh& mesh, Group group) const;

 private:
  Nodes(int world, int per_node, std::vector<int> node_of)
      : world_(world), per_node_(per_node), node_of_(std::move(node_of)) {}
  void check(int rank) const;

  int world_, per_node_;
  std::vector<int> node_of_;  // empty: consecutive
};

// What a transport goes by: `hosts` as found by world rank, and runtime.ranks_per_node, which may
// cut hosts into smaller nodes (0: nodes are hosts). RequestError where a node would span hosts;
// `names` has each rank's, for people.
Nodes nodes_of(std::vector<int> hosts, int ranks_per_node,
               const std::vector<std::string>& names = {});

}  // namespace trident
