#include "parallel/nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include "base/error.h"
#include "parallel/collectives/exchange.h"
#include "support/mesh.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::mesh;

template <class Run>
std::string refusal(Run run) {
  try {
    run();
  } catch (const RequestError& error) {
    return error.what();
  }
  return "accepted";
}

// Placements of ranks: node after node, one on each node in turn (mpirun --map-by node), uneven,
// and arbitrary.
std::vector<Nodes> placements() {
  std::vector<Nodes> all;
  for (const int per_node : {1, 2, 3, 4, 5, 6, 12, 100, 2'000'000'000}) {
    all.push_back(Nodes::consecutive(12, per_node));
  }
  all.push_back(Nodes::found({0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
  all.push_back(Nodes::found({0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  all.push_back(Nodes::found({7, 7, 3, 7, 9, 3, 3, 3, 9, 7, 7, 7}));
  return all;
}

TEST(Nodes, PartitionTheWorldBothWays) {
  for (const Nodes& nodes : placements()) {
    std::multiset<int> inside, across;
    for (int r = 0; r < 12; ++r) {
      const auto node = nodes.inside(r), line = nodes.across(r);
      for (const int m : node) EXPECT_EQ(nodes.of(m), nodes.of(r));
      std::set<int> seen;
      for (const int m : line) {
        EXPECT_TRUE(seen.insert(nodes.of(m)).second) << "two ranks of one node";
        EXPECT_EQ(nodes.across(m), line);
      }
      if (node[0] == r) inside.insert(node.begin(), node.end());
      if (line[0] == r) across.insert(line.begin(), line.end());
    }
    EXPECT_EQ(inside, across) << nodes.text();
    EXPECT_EQ(inside.size(), 12U);
    EXPECT_EQ(std::set<int>(inside.begin(), inside.end()).size(), 12U);
  }
}

TEST(Nodes, FollowTheHostsOfTheRanks) {
  const Nodes turns = Nodes::found({0, 1, 0, 1});
  EXPECT_THAT(turns.inside(2), ElementsAre(0, 2));
  EXPECT_THAT(turns.across(2), ElementsAre(2, 3));
  EXPECT_EQ(turns.text(), "ranks 0,2 | 1,3");
  const Nodes uneven = Nodes::found({0, 5, 5, 5});
  EXPECT_THAT(uneven.inside(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(uneven.across(0), ElementsAre(0, 1));
  EXPECT_THAT(uneven.across(3), ElementsAre(3));
  EXPECT_EQ(uneven.text(), "ranks 0 | 1 to 3");
  EXPECT_EQ(Nodes::consecutive(64, 8).text(),
            "ranks 0 to 7 | 8 to 15 | 16 to 23 | 24 to 31 | … (8 nodes)");
}

TEST(Nodes, FindTheGroupsThatSpanThem) {
  for (const std::string order : {"tp-dp-pp", "dp-pp-tp", "pp-tp-dp"}) {
    const Mesh ranks = mesh(2, 3, 2, order);
    for (const Nodes& nodes : placements()) {
      for (const Group group : {Group::tensor, Group::shard, Group::pipeline}) {
        std::set<std::vector<int>> spanning;
        for (int r = 0; r < 12; ++r) {
          for (const int m : ranks.group(r, group)) {
            if (nodes.of(m) != nodes.of(r)) spanning.insert(ranks.group(r, group));
          }
        }
        const auto found = nodes.groups_across(ranks, group);
        EXPECT_EQ(std::set(found.begin(), found.end()), spanning) << order << " " << nodes.text();
        EXPECT_EQ(found.size(), spanning.size());
      }
    }
  }
}

TEST(Nodes, RanksPerNodeMaySplitHostsButNotJoinThem) {
  EXPECT_EQ(nodes_of({0, 0, 4, 4}, 0).text(), "ranks 0,1 | 2,3");
  EXPECT_EQ(nodes_of({0, 0, 0, 0}, 2).text(), "ranks 0,1 | 2,3");
  EXPECT_EQ(nodes_of({0, 0, 4, 4}, 1).text(), "ranks 0 | 1 | 2 | 3");
  EXPECT_THAT(refusal([] {
                nodes_of({0, 1, 0, 1}, 2, {"a", "b", "a", "b"});
              }),
              HasSubstr("config: /runtime/ranks_per_node: 2 takes ranks 0 and 1 for one node, but "
                        "they are on different hosts (rank 0 on a, rank 1 on b); leave it out"));
  EXPECT_THAT(refusal([] { nodes_of({0, 0, 4, 4}, 4); }), HasSubstr("takes ranks 1 and 2"));
  EXPECT_EQ(refusal([] { Nodes::consecutive(8, 0); }),
            "ranks_per_node is 0; needs 1 or more (the world has 8 ranks)");
}

TEST(HostRuns, AreWhereTheMembersOfEachHostAreNeighbours) {
  const Nodes nodes = Nodes::consecutive(12, 4);
  const auto begins = [&](const std::vector<int>& members, int rank = 0) {
    const auto runs = host_runs(nodes, members, rank);
    return runs == nullptr ? std::vector<int>() : runs->begin;
  };
  EXPECT_THAT(begins({0, 1, 2, 3, 4, 5, 6, 7}), ElementsAre(0, 4, 8));
  EXPECT_THAT(begins({9, 8, 1, 0, 5}), ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(begins({0, 1, 2}), ElementsAre());        // on one host
  EXPECT_THAT(begins({0, 4, 8}), ElementsAre());        // each on its own host
  EXPECT_THAT(begins({0, 4, 1, 8, 9}), ElementsAre());  // those of host 0 are no neighbours
  EXPECT_EQ(host_runs(nodes, {9, 8, 1, 0, 5}, 3)->own, 1U);
  EXPECT_EQ(host_runs(nodes, {9, 8, 1, 0, 5}, 4)->own, 2U);
}

}  // namespace
}  // namespace trident
