#include "parallel/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "core/error.h"
#include "parallel/transport/transport.h"

namespace trident {
namespace {

using testing::HasSubstr;

TEST(Topology, EveryRanksGroupsAreTheGridsAndCarryData) {
  const RankGrid grid(2, 2, 3, "tp-pp-dp");
  const Nodes nodes = Nodes::consecutive(12, 4);
  const auto device = make_cpu_device();
  run_local(12, {}, [&](Transport& transport) {
    Context context(*device, 1);
    const Topology t = make_topology(transport.world(), grid, nodes);
    const int rank = transport.world().rank();
    EXPECT_EQ(t.at, grid.coordinates(rank));
    EXPECT_EQ(t.tensor.world_ranks(), grid.group(rank, Axis::tensor));
    EXPECT_EQ(t.data.world_ranks(), grid.group(rank, Axis::data));
    EXPECT_EQ(t.pipeline.world_ranks(), grid.group(rank, Axis::pipeline));
    EXPECT_EQ(t.tensor.rank(), t.at.tensor);
    EXPECT_EQ(t.data.rank(), t.at.data);
    EXPECT_EQ(t.pipeline.rank(), t.at.pipeline);
    EXPECT_EQ(t.embedding.defined(), t.at.pipeline != 1);
    if (t.embedding.defined()) {
      EXPECT_EQ(t.embedding.world_ranks(), grid.embedding_group(rank));
    }
    EXPECT_EQ(t.node.world_ranks(), nodes.inside(rank));
    EXPECT_EQ(t.across_nodes.world_ranks(), nodes.across(rank));
    EXPECT_TRUE(t.warnings.empty());

    for (const ProcessGroup& group :
         {t.world, t.tensor, t.data, t.pipeline, t.embedding, t.node, t.across_nodes}) {
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

TEST(Topology, OneRankIsAllGroups) {
  run_local(1, {}, [&](Transport& transport) {
    const Topology t = make_topology(transport.world(), RankGrid(1, 1, 1), transport.nodes());
    for (const ProcessGroup& group : {t.tensor, t.data, t.pipeline, t.embedding, t.node}) {
      EXPECT_EQ(group.world_ranks(), std::vector<int>{0});
    }
  });
}

// A schedule over a V puts the first and the last stage on rank 0, a user's own anywhere.
TEST(Topology, TheEmbeddingGroupHoldsTheFirstAndTheLastStage) {
  run_local(8, {}, [&](Transport& transport) {
    const RankGrid grid(2, 1, 4);
    const Topology v =
        make_topology(transport.world(), grid, transport.nodes(), {.first = 0, .last = 0});
    EXPECT_EQ(v.embedding.defined(), v.at.pipeline == 0);
    if (v.embedding.defined()) {
      EXPECT_EQ(v.embedding.size(), 1);
    }
    const Topology own =
        make_topology(transport.world(), grid, transport.nodes(), {.first = 2, .last = 1});
    EXPECT_EQ(own.embedding.defined(), own.at.pipeline == 1 || own.at.pipeline == 2);
    if (own.embedding.defined()) {
      EXPECT_EQ(own.embedding.rank(), own.at.pipeline == 2 ? 0 : 1);
    }
  });
}

TEST(Topology, WarnsWhenTensorParallelismCrossesNodes) {
  TransportOptions options;
  options.ranks_per_node = 2;
  run_local(8, options, [&](Transport& transport) {
    const Topology t = make_topology(transport.world(), RankGrid(2, 4, 1), transport.nodes());
    ASSERT_EQ(t.warnings.size(), 1u);
    EXPECT_THAT(
        t.warnings[0],
        HasSubstr("tensor parallelism crosses nodes: 2 of 2 groups of 4 ranks do (the first "
                  "is 0,1,2,3; nodes: ranks 0,1 | 2,3 | 4,5 | 6,7)"));
  });
}

TEST(Topology, AGridThatDoesNotFillTheWorldIsRefused) {
  try {
    run_local(6, {}, [&](Transport& transport) {
      make_topology(transport.world(), RankGrid(2, 2, 2), transport.nodes());
    });
    FAIL() << "no error";
  } catch (const RequestError& e) {
    EXPECT_STREQ(e.what(), "the world has 6 ranks; dp 2 x tp 2 x pp 2 needs 8");
  }
}

}  // namespace
}  // namespace trident
