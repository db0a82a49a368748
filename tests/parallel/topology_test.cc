#include "parallel/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "base/error.h"
#include "parallel/transport/planning.h"
#include "parallel/transport/transport.h"
#include "support/mesh.h"

namespace trident {
namespace {

using ::testing::HasSubstr;
using testing::mesh;
using testing::replica_axis;
using ::testing::UnorderedElementsAreArray;

TEST(Topology, EveryRanksGroupsAreTheMeshsAndCarryData) {
  std::vector<MeshAxis> axes = mesh(2, 2, 3).axes();
  axes.push_back(replica_axis(2));
  const Mesh ranks(axes, "tp-rp-pp-dp");
  const Nodes nodes = Nodes::consecutive(24, 4);
  const auto device = make_cpu_device();
  run_local(24, {}, [&](Transport& transport) {
    Context context(*device, 1);
    const Topology t = make_topology(transport.world(), ranks, nodes);
    const int rank = transport.world().rank();
    EXPECT_EQ(t.of(Group::tensor).world_ranks(), ranks.group(rank, Group::tensor));
    EXPECT_EQ(t.of(Group::shard).world_ranks(), ranks.group(rank, Group::shard));
    EXPECT_EQ(t.of(Group::replicas).world_ranks(), ranks.group(rank, Group::replicas));
    EXPECT_EQ(t.of(Group::pipeline).world_ranks(), ranks.group(rank, Group::pipeline));
    EXPECT_EQ(t.of(Group::tensor).rank(), t.place(Group::tensor));
    EXPECT_EQ(t.of(Group::shard).rank(), t.place(Group::shard));
    EXPECT_EQ(t.of(Group::replicas).rank(), t.place(Group::replicas));
    EXPECT_EQ(t.of(Group::pipeline).rank(), t.place(Group::pipeline));
    EXPECT_EQ(t.place(Group::batch), t.of(Group::shard).rank() + 2 * t.of(Group::replicas).rank());
    EXPECT_EQ(t.embedding.defined(), t.of(Group::pipeline).rank() != 1);
    if (t.embedding.defined()) {
      EXPECT_EQ(t.embedding.world_ranks(), ranks.embedding_group(rank));
    }
    std::vector<std::string> names;
    for (const TrafficGroup& group : t.traffic_groups()) {
      if (!group.members.defined()) continue;
      EXPECT_EQ(group.members.world_ranks(), ranks_of(t, group, rank)) << group.name;
      EXPECT_EQ(group.members.rank(), place_of(ranks, t.ends, group.name, rank)) << group.name;
      EXPECT_EQ(traffic_of(group.members.name()), group.name);
      names.push_back(group.name);
    }
    if (t.embedding.defined()) {
      EXPECT_THAT(traffic_names(ranks), UnorderedElementsAreArray(names));
    }
    EXPECT_EQ(traffic_of("check"), "world");
    EXPECT_EQ(t.node.world_ranks(), nodes.inside(rank));
    EXPECT_EQ(t.across_nodes.world_ranks(), nodes.across(rank));
    EXPECT_TRUE(t.warnings.empty());

    for (const ProcessGroup& group :
         {t.world, t.of(Group::tensor), t.of(Group::shard), t.of(Group::replicas),
          t.of(Group::pipeline), t.embedding, t.node, t.across_nodes}) {
      if (!group.defined()) continue;
      const std::vector<std::int64_t> mine = {std::int64_t{1} << rank};
      const Tensor x = context.from_host<std::int64_t>({1}, mine, Category::workspace);
      group.all_reduce(context, x, ReduceOp::bit_or);
      std::int64_t wanted = 0;
      for (const int m : group.world_ranks()) wanted |= std::int64_t{1} << m;
      EXPECT_EQ(context.to_host<std::int64_t>(x)[0], wanted) << group.name();
    }
  });
}

TEST(Topology, ExpertsHaveGroupsOfTheirOwn) {
  std::vector<MeshAxis> axes = mesh(4, 2, 2).axes();
  for (const MeshAxis& axis : expert_axes(axes, 2, 2)) axes.push_back(axis);
  const Mesh ranks(axes, "tp-cp-dp-pp");
  const Nodes nodes = Nodes::consecutive(16, 16);
  run_local(16, {}, [&](Transport& transport) {
    const Topology t = make_topology(transport.world(), ranks, nodes);
    const int rank = transport.world().rank();
    for (const Group group :
         {Group::expert, Group::expert_tensor, Group::exchange, Group::expert_shard}) {
      EXPECT_EQ(t.of(group).world_ranks(), ranks.group(rank, group));
      EXPECT_EQ(t.of(group).rank(), t.place(group));
    }
    EXPECT_FALSE(t.of(Group::expert_replicas).defined());
    for (const TrafficGroup& group : t.traffic_groups()) {
      if (!group.members.defined()) continue;
      EXPECT_EQ(group.members.world_ranks(), ranks_of(t, group, rank)) << group.name;
    }
    // Each part of an expert has one primary replica, and as many holders as ranks share its data.
    Placement expert = Placement::replicated({4, 6, 3});
    expert.data = DataGroups::of_expert();
    expert.shard(0, Group::expert, {4}, t.place(Group::expert), 2)
        .shard(1, Group::expert_tensor, {6}, t.place(Group::expert_tensor), 2);
    EXPECT_EQ(t.holder(expert).count, 1) << "ranks with other samples are not counted";
    EXPECT_TRUE(expert.is_primary([&](Group group) { return t.place(group); }));
    Placement shared = Placement::replicated({4, 5});  // a bias that all ranks of an expert hold
    shared.data = DataGroups::of_expert();
    shared.shard(0, Group::expert, {4}, t.place(Group::expert), 2);
    EXPECT_EQ(t.holder(shared).count, 2);
    EXPECT_EQ(shared.is_primary([&](Group group) { return t.place(group); }),
              t.place(Group::expert_tensor) == 0);
    EXPECT_TRUE(shared.is_same_over(Group::expert_tensor));
    EXPECT_TRUE(shared.is_same_over(Group::expert_shard));
    EXPECT_FALSE(shared.is_same_over(Group::expert));
    EXPECT_FALSE(shared.is_same_over(Group::tensor)) << "no group of an expert";
  });
}

// A model without experts has none of their groups.
TEST(Topology, WithoutExpertsTheirGroupsAreNotMade) {
  run_local(2, {}, [&](Transport& transport) {
    const Topology t = make_topology(transport.world(), mesh(2, 1, 1), Nodes::consecutive(2, 2));
    for (const Group group : {Group::expert, Group::expert_tensor, Group::exchange,
                              Group::expert_shard, Group::expert_replicas}) {
      EXPECT_FALSE(t.of(group).defined());
      EXPECT_EQ(t.size(group), 1);
    }
  });
}

TEST(Topology, OneRankIsAllGroups) {
  run_local(1, {}, [&](Transport& transport) {
    const Topology t = make_topology(transport.world(), Mesh({}), transport.nodes());
    for (const ProcessGroup& group :
         {t.of(Group::tensor), t.of(Group::shard), t.of(Group::pipeline), t.embedding, t.node}) {
      EXPECT_EQ(group.world_ranks(), std::vector<int>{0});
    }
  });
}

// A V schedule puts the first and the last stage on rank 0; a user's schedule may put them on any
// rank.
TEST(Topology, TheEmbeddingGroupHoldsTheFirstAndTheLastStage) {
  run_local(8, {}, [&](Transport& transport) {
    const Mesh ranks = mesh(2, 1, 4);
    const Topology v =
        make_topology(transport.world(), ranks, transport.nodes(), {.first = 0, .last = 0});
    EXPECT_EQ(v.embedding.defined(), v.of(Group::pipeline).rank() == 0);
    if (v.embedding.defined()) {
      EXPECT_EQ(v.embedding.size(), 1);
    }
    const Topology own =
        make_topology(transport.world(), ranks, transport.nodes(), {.first = 2, .last = 1});
    EXPECT_EQ(own.embedding.defined(),
              own.of(Group::pipeline).rank() == 1 || own.of(Group::pipeline).rank() == 2);
    if (own.embedding.defined()) {
      EXPECT_EQ(own.embedding.rank(), own.of(Group::pipeline).rank() == 2 ? 0 : 1);
    }
  });
}

TEST(Topology, WarnsWhenTensorParallelismCrossesNodes) {
  TransportOptions options;
  options.ranks_per_node = 2;
  run_local(8, options, [&](Transport& transport) {
    const Topology t = make_topology(transport.world(), mesh(2, 4, 1), transport.nodes());
    ASSERT_EQ(t.warnings.size(), 1u);
    EXPECT_THAT(
        t.warnings[0],
        HasSubstr("tensor parallelism crosses nodes: 2 of 2 groups of 4 ranks do (the first "
                  "is 0,1,2,3; nodes: ranks 0,1 | 2,3 | 4,5 | 6,7)"));
  });
}

TEST(Topology, AMeshThatDoesNotFillTheWorldIsRefused) {
  try {
    run_local(6, {}, [&](Transport& transport) {
      make_topology(transport.world(), mesh(2, 2, 2), transport.nodes());
    });
    FAIL() << "no error";
  } catch (const RequestError& e) {
    EXPECT_STREQ(e.what(), "the world has 6 ranks; dp 2 x tp 2 x pp 2 needs 8");
  }
}

// Making a rank's groups takes time in proportion to their members; only the nodes look at all
// ranks.
TEST(Topology, OfAHundredThousandRanksIsMadeAtOnce) {
  const Mesh ranks = mesh(250, 8, 50);
  const auto transport = make_planning_transport(99'999, 100'000, true, {.ranks_per_node = 8});
  const Topology t = make_topology(transport->world(), ranks, transport->nodes());
  EXPECT_EQ(t.of(Group::shard).size(), 250);
  EXPECT_EQ(t.of(Group::pipeline).size(), 50);
  EXPECT_EQ(t.node.size(), 8);
  EXPECT_EQ(t.across_nodes.size(), 12'500);
  EXPECT_TRUE(t.warnings.empty());
}

}  // namespace
}  // namespace trident
