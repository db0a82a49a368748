// The nodes of a world: which ranks share one, as the transport found it or as
// runtime.ranks_per_node simulates it.
//
// Any thread may call it. Functions that take a rank throw RequestError for a rank outside the
// world.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "parallel/mesh.h"

namespace trident {

class Nodes {
 public:
  // Ranks r with equal r / ranks_per_node share a node; the last node may have fewer ranks. Throws
  // RequestError for a ranks_per_node below 1.
  static Nodes consecutive(int world, int ranks_per_node);
  // `node_of` holds a number for each world rank; ranks with equal numbers share a node.
  static Nodes found(std::vector<int> node_of);

  int world_size() const { return world_; }
  // The number of `rank`'s node: equal for ranks that share a node, otherwise arbitrary.
  int of(int rank) const;
  // The ranks of `rank`'s node, ascending.
  std::vector<int> inside(int rank) const;
  // The ranks that have `rank`'s place in their nodes, ascending. A node with too few ranks
  // contributes none.
  std::vector<int> across(int rank) const;
  // "ranks 0 to 3 | 4 to 7"; where there are many nodes, only the first ones.
  std::string text() const;

  // The groups of this kind that span two or more nodes.
  std::vector<std::vector<int>> groups_across(const Mesh& mesh, Group group) const;

 private:
  Nodes(int world, int per_node, std::vector<int> node_of)
      : world_(world), per_node_(per_node), node_of_(std::move(node_of)) {}
  void check(int rank) const;

  int world_, per_node_;
  std::vector<int> node_of_;  // empty: ranks are consecutive
};

// The nodes that a transport uses. `hosts` holds the host that it found for each world rank.
// runtime.ranks_per_node may split hosts into smaller nodes (0: nodes are hosts). Throws
// RequestError where a node would span hosts. `names` holds the name of each rank's host, for
// messages.
Nodes nodes_of(std::vector<int> hosts, int ranks_per_node,
               const std::vector<std::string>& names = {});

}  // namespace trident
