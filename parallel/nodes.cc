#include "parallel/nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace trident {

Nodes Nodes::consecutive(int world, int ranks_per_node) {
  if (ranks_per_node < 1) {
    throw RequestError(fmt::format("ranks_per_node is {}; needs 1 or more (the world has {} ranks)",
                                   ranks_per_node, world));
  }
  return {world, ranks_per_node, {}};
}

Nodes Nodes::found(std::vector<int> node_of) {
  const int world = static_cast<int>(node_of.size());
  return {world, 0, std::move(node_of)};
}

void Nodes::check(int rank) const {
  if (rank < 0 || rank >= world_) {
    throw RequestError(fmt::format("rank {} is not in a world of {} ranks", rank, world_));
  }
}

int Nodes::of(int rank) const {
  check(rank);
  return node_of_.empty() ? rank / per_node_ : node_of_[static_cast<std::size_t>(rank)];
}

std::vector<int> Nodes::inside(int rank) const {
  const int node = of(rank);
  std::vector<int> ranks;
  // A plan asks this for each of up to a million ranks.
  const int begin = node_of_.empty() ? rank - rank % per_node_ : 0;
  for (int r = begin; r < world_; ++r) {
    if (of(r) == node) {
      ranks.push_back(r);
    } else if (node_of_.empty()) {
      break;
    }
  }
  return ranks;
}

std::vector<int> Nodes::across(int rank) const {
  const std::vector<int> own = inside(rank);
  const auto place = static_cast<int>(std::find(own.begin(), own.end(), rank) - own.begin());
  std::vector<int> ranks;
  if (node_of_.empty()) {
    for (std::int64_t r = place; r < world_; r += per_node_) ranks.push_back(static_cast<int>(r));
    return ranks;
  }
  std::map<int, int> seen;  // ranks by node so far
  for (int r = 0; r < world_; ++r) {
    if (seen[of(r)]++ == place) ranks.push_back(r);
  }
  return ranks;
}

std::string Nodes::text() const {
  std::vector<std::vector<int>> nodes;
  std::map<int, std::size_t> place;
  for (int r = 0; r < world_; ++r) {
    const auto [at, added] = place.try_emplace(of(r), nodes.size());
    if (added) nodes.emplace_back();
    nodes[at->second].push_back(r);
  }
  constexpr std::size_t shown = 4;
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < std::min(shown, nodes.size()); ++i) {
    const auto& node = nodes[i];
    const bool run =
        node.size() > 2 && node.back() - node.front() == static_cast<int>(node.size()) - 1;
    texts.push_back(run ? fmt::format("{} to {}", node.front(), node.back())
                        : fmt::format("{}", fmt::join(node, ",")));
  }
  return fmt::format("ranks {}{}", fmt::join(texts, " | "),
                     nodes.size() > shown ? fmt::format(" | … ({} nodes)", nodes.size()) : "");
}

std::vector<std::vector<int>> Nodes::groups_across(const Mesh& mesh, Group group) const {
  std::vector<std::vector<int>> groups;
  // A plan asks this once for every stage, of up to a million ranks.
  if (mesh.size(group) == 1 || (node_of_.empty() && per_node_ >= world_)) return groups;
  for (int first = 0; first < world_; ++first) {
    if (mesh.place(first, group) != 0) continue;
    std::vector<int> members = mesh.group(first, group);
    if (std::any_of(members.begin(), members.end(),
                    [&](int member) { return of(member) != of(first); })) {
      groups.push_back(std::move(members));
    }
  }
  return groups;
}

Nodes nodes_of(std::vector<int> hosts, int ranks_per_node, const std::vector<std::string>& names) {
  if (ranks_per_node == 0) return Nodes::found(std::move(hosts));
  const Nodes nodes = Nodes::consecutive(static_cast<int>(hosts.size()), ranks_per_node);
  for (int rank = 1; rank < nodes.world_size(); ++rank) {
    const int before = rank - 1;
    const auto host = [&](int r) { return hosts[static_cast<std::size_t>(r)]; };
    if (nodes.of(rank) != nodes.of(before) || host(rank) == host(before)) continue;
    const auto name = [&](int r) {
      return names.empty() ? "" : " on " + names[static_cast<std::size_t>(r)];
    };
    throw RequestError(fmt::format(
        "config: /runtime/ranks_per_node: {} takes ranks {} and {} for one node, but they are on "
        "different hosts (rank {}{}, rank {}{}); leave it out, or start the ranks host after host "
        "(mpirun --map-by slot)",
        ranks_per_node, before, rank, before, name(before), rank, name(rank)));
  }
  return nodes;
}

}  // namespace trident
