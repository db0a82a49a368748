#include "parallel/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "support/mesh.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::mesh;
using testing::replica_axis;

constexpr Group groups[] = {Group::tensor, Group::pipeline, Group::batch,
                            Group::shard,  Group::replicas, Group::loss};
constexpr const char* orders[] = {"tp-dp-pp", "tp-pp-dp", "dp-tp-pp",
                                  "dp-pp-tp", "pp-tp-dp", "pp-dp-tp"};

template <class F>
void expect_request_error(F&& f, const std::string& text) {
  try {
    f();
    FAIL() << "no error, wanted: " << text;
  } catch (const RequestError& e) {
    EXPECT_THAT(e.what(), HasSubstr(text));
  }
}

Mesh with_replicas(int data, int tensor, int pipeline, int replicas, const std::string& order) {
  std::vector<MeshAxis> axes = mesh(data, tensor, pipeline).axes();
  axes.push_back(replica_axis(replicas));
  return Mesh(axes, order);
}

TEST(Mesh, DefaultOrderIsMegatrons) {
  // This is Megatron-LM's example: 16 ranks, tensor 2, pipeline 4 (so data 2).
  const Mesh ranks = mesh(2, 2, 4);
  EXPECT_EQ(ranks.world_size(), 16);
  EXPECT_THAT(ranks.group(0, Group::tensor), ElementsAre(0, 1));
  EXPECT_THAT(ranks.group(15, Group::tensor), ElementsAre(14, 15));
  EXPECT_THAT(ranks.group(1, Group::shard), ElementsAre(1, 3));
  EXPECT_THAT(ranks.group(12, Group::batch), ElementsAre(12, 14));
  EXPECT_THAT(ranks.group(12, Group::replicas), ElementsAre(12));
  EXPECT_THAT(ranks.group(0, Group::pipeline), ElementsAre(0, 4, 8, 12));
  EXPECT_THAT(ranks.group(7, Group::pipeline), ElementsAre(3, 7, 11, 15));
  EXPECT_THAT(ranks.embedding_group(7), ElementsAre(3, 15));
  EXPECT_THAT(ranks.embedding_group(7, {.first = 2, .last = 1}), ElementsAre(11, 7));
  EXPECT_THAT(ranks.embedding_group(7, {.first = 1, .last = 1}), ElementsAre(7));
  EXPECT_THAT(ranks.coordinates(13), ElementsAre(0, 1, 3));  // dp, tp, pp
}

TEST(Mesh, PipelinesAndRanksOfOneStageFollowFromCoordinates) {
  for (const char* order : orders) {
    const Mesh ranks = with_replicas(3, 2, 4, 2, order);
    for (int place = 0; place < 4; ++place) {
      std::vector<int> wanted;
      for (int rank = 0; rank < ranks.world_size(); ++rank) {
        if (ranks.place(rank, Group::pipeline) == place) wanted.push_back(rank);
        EXPECT_EQ(
            ranks.pipeline(rank)[static_cast<std::size_t>(ranks.place(rank, Group::pipeline))],
            rank);
      }
      EXPECT_EQ(ranks.same_stage(place), wanted) << order;
      EXPECT_EQ(ranks.pipeline_place(wanted.back()), "pp " + std::to_string(place));
    }
  }
  expect_request_error([] { mesh(2, 2, 4).same_stage(4); }, "coordinate 4 is not one of 0 to 3");
}

TEST(Mesh, EveryOrderIsTheReshapeItNames) {
  for (const std::string order : orders) {
    const Mesh ranks = mesh(3, 2, 5, order);
    int rank = 0;
    // Ranks count like nested loops, with the first named axis innermost.
    const auto name = [&](int i) { return order.substr(static_cast<std::size_t>(i) * 3, 2); };
    const auto size = [&](int i) { return name(i) == "tp" ? 2 : name(i) == "dp" ? 3 : 5; };
    for (int c = 0; c < size(2); ++c) {
      for (int b = 0; b < size(1); ++b) {
        for (int a = 0; a < size(0); ++a) {
          std::vector<int> at(3);
          const int values[] = {a, b, c};
          for (int i = 0; i < 3; ++i) at[name(i) == "dp" ? 0 : name(i) == "tp" ? 1 : 2] = values[i];
          EXPECT_EQ(ranks.coordinates(rank), at) << order;
          EXPECT_EQ(ranks.rank(at), rank) << order;
          EXPECT_EQ(ranks.place(rank, Group::tensor), at[1]);
          ++rank;
        }
      }
    }
  }
}

TEST(Mesh, TheGroupsOfEveryKindPartitionTheWorldAndAllMembersAgree) {
  for (const std::string order : orders) {
    for (const auto& [dp, tp, pp, rp] :
         {std::array{1, 1, 1, 1}, {2, 2, 2, 1}, {3, 1, 2, 1}, {4, 3, 5, 2}, {1, 2, 1, 3}}) {
      const Mesh ranks = with_replicas(dp, tp, pp, rp, order);
      EXPECT_EQ(ranks.world_size(), dp * tp * pp * rp);
      for (const Group group : groups) {
        std::multiset<int> seen;
        for (int r = 0; r < ranks.world_size(); ++r) {
          const auto members = ranks.group(r, group);
          ASSERT_EQ(static_cast<int>(members.size()), ranks.size(group));
          ASSERT_EQ(members[static_cast<std::size_t>(ranks.place(r, group))], r);
          for (const int m : members) EXPECT_EQ(ranks.group(m, group), members);
          if (members[0] == r) seen.insert(members.begin(), members.end());
        }
        EXPECT_EQ(static_cast<int>(seen.size()), ranks.world_size());
        EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), seen.size());
      }
    }
  }
}

// Samples are assigned by the axes, so that another order of ranks trains on the same samples.
TEST(Mesh, APlaceInAGroupOfSeveralAxesIsThatOfTheAxesInAnyOrderOfRanks) {
  for (const std::string order : {"tp-dp-pp", "pp-dp-tp", "rp-tp-dp-pp", "dp-rp-pp-tp"}) {
    const Mesh ranks = with_replicas(3, 2, 2, 2, order);
    EXPECT_EQ(ranks.size(Group::batch), 6);
    EXPECT_EQ(ranks.size(Group::shard), 3);
    EXPECT_EQ(ranks.size(Group::replicas), 2);
    for (int r = 0; r < ranks.world_size(); ++r) {
      const std::vector<int> at = ranks.coordinates(r);
      EXPECT_EQ(ranks.place(r, Group::batch), at[0] + 3 * at[3]) << order;
      for (int place = 0; place < 6; ++place) {
        const int other = ranks.moved(r, Group::batch, place);
        EXPECT_EQ(ranks.place(other, Group::batch), place);
        EXPECT_EQ(ranks.place(other, Group::tensor), ranks.place(r, Group::tensor));
        EXPECT_EQ(ranks.place(other, Group::pipeline), ranks.place(r, Group::pipeline));
      }
    }
  }
}

// The default order of a config names cp, too.
TEST(Mesh, AnOrderMayNameTheContextAxisBeforeItIsThere) {
  const Mesh without = mesh(3, 2, 2, "tp-dp-pp"), with = mesh(3, 2, 2, "tp-cp-dp-pp");
  ASSERT_EQ(with.world_size(), 12);
  for (int r = 0; r < with.world_size(); ++r) {
    EXPECT_EQ(with.coordinates(r), without.coordinates(r));
  }
}

// Experts divide the ranks of a stage otherwise than its layers do.
Mesh with_experts(int data, int tensor, int pipeline, int experts, int expert_tensor,
                  const std::string& order) {
  std::vector<MeshAxis> axes = mesh(data, tensor, pipeline).axes();
  for (MeshAxis& axis : expert_axes(axes, experts, expert_tensor)) axes.push_back(axis);
  return Mesh(axes, order);
}

TEST(Mesh, FoldedAxesNumberTheRanksOfAStageInRankOrder) {
  for (const std::string order : orders) {
    for (const auto& [dp, tp, pp, ep, etp] : {std::array{1, 1, 1, 1, 1},
                                              {4, 2, 2, 4, 2},
                                              {4, 2, 3, 2, 1},
                                              {3, 2, 2, 3, 1},
                                              {2, 3, 2, 2, 3},
                                              {4, 1, 2, 2, 1},
                                              {1, 4, 2, 2, 2}}) {
      const Mesh ranks = with_experts(dp, tp, pp, ep, etp, order);
      ASSERT_EQ(ranks.world_size(), dp * tp * pp);
      EXPECT_EQ(ranks.size(Group::expert), ep);
      EXPECT_EQ(ranks.size(Group::expert_tensor), etp);
      EXPECT_EQ(ranks.size(Group::exchange), ep * etp);
      EXPECT_EQ(ranks.size(Group::expert_shard), dp * tp / ep / etp);
      EXPECT_EQ(ranks.size(Group::expert_replicas), 1);
      for (int stage = 0; stage < pp; ++stage) {
        const std::vector<int> members = ranks.same_stage(stage);  // ascending
        for (int number = 0; number < dp * tp; ++number) {
          const int r = members[static_cast<std::size_t>(number)];
          EXPECT_EQ(ranks.place(r, Group::expert_tensor), number % etp);
          EXPECT_EQ(ranks.place(r, Group::expert), number / etp % ep);
          EXPECT_EQ(ranks.place(r, Group::expert_shard), number / etp / ep);
          // Consecutive ranks exchange tokens, those of a stage alone.
          const int block = ep * etp;
          const auto first = members.begin() + number / block * block;
          EXPECT_EQ(ranks.group(r, Group::exchange), std::vector<int>(first, first + block));
          for (const Group group :
               {Group::expert, Group::expert_tensor, Group::exchange, Group::expert_shard}) {
            for (int place = 0; place < ranks.size(group); ++place) {
              const int other = ranks.moved(r, group, place);
              EXPECT_EQ(ranks.place(other, group), place);
              EXPECT_EQ(ranks.group(other, group), ranks.group(r, group));
              EXPECT_EQ(ranks.place(other, Group::pipeline), stage);
            }
          }
          EXPECT_EQ(ranks.rank(ranks.coordinates(r)), r);
        }
      }
    }
  }
}

TEST(Mesh, FoldedAxesThatDoNotDivideAStageAreRefused) {
  expect_request_error([] { with_experts(4, 1, 2, 3, 1, ""); },
                       "the folded axes have 3 ranks, a pipeline stage has 4");
  expect_request_error([] { with_experts(2, 1, 1, 0, 1, ""); }, "ep size is 0");
  expect_request_error([] { with_experts(4, 1, 2, 8, 1, ""); },
                       "dp 4 x tp 1 x pp 2 x ep 8: the folded axes have 8 ranks, a pipeline stage");
  EXPECT_EQ(text_of(with_experts(4, 2, 2, 4, 1, "").axes()), "dp 4 x tp 2 x pp 2 x ep 4");
  EXPECT_EQ(text_of(with_experts(1, 2, 2, 1, 2, "").axes()), "dp 1 x tp 2 x pp 2 x etp 2");
}

TEST(Mesh, OfNoAxesIsOneRank) {
  const Mesh one({});
  EXPECT_EQ(one.world_size(), 1);
  for (const Group group : groups) EXPECT_THAT(one.group(0, group), ElementsAre(0));
}

TEST(Mesh, WrongArgumentsAreNamed) {
  expect_request_error([] { mesh(2, 0, 1); }, "tp size is 0");
  expect_request_error(
      [] { mesh(2, 1, 2, "tp-dp"); },
      "rank order 'tp-dp' must name dp, tp and pp once each (an axis of size 1 may "
      "be left out), fastest first, as in 'dp-tp-pp'");
  EXPECT_EQ(mesh(2, 1, 1, "tp-dp").group(0, Group::batch), (std::vector<int>{0, 1}));
  expect_request_error([] { mesh(2, 1, 1, "tp-dp-tp"); }, "'tp-dp-tp'");
  expect_request_error([] { mesh(2, 1, 1, "cp-tp-cp-dp"); }, "'cp-tp-cp-dp'");
  expect_request_error([] { mesh(2, 1, 1, "tp-dp-pp-"); }, "'tp-dp-pp-'");
  expect_request_error([] { mesh(2, 1, 1, "tp-dp-ep"); }, "'tp-dp-ep'");
  expect_request_error([] { mesh(1 << 20, 1 << 20, 1 << 20); }, "is more than 16777216 ranks");
  const Mesh ranks = mesh(2, 2, 2);
  expect_request_error([&] { ranks.coordinates(8); }, "rank 8 is not in a world of 8 ranks");
  expect_request_error([&] { ranks.place(-1, Group::loss); }, "rank -1 is not in");
  expect_request_error([&] { ranks.rank({2, 0, 0}); }, "dp coordinate 2 is not one of 0 to 1");
  expect_request_error([&] { ranks.rank({0, 0}); }, "2 coordinates for 3 axes");
  expect_request_error([&] { ranks.moved(0, Group::shard, 2); },
                       "group coordinate 2 is not one of 0 to 1");
}

}  // namespace
}  // namespace trident
