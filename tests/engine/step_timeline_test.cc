// The drawn iteration shows the messages that its groups sent.
#include "engine/step_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/setup/from_config.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

struct Case {
  const char* name;
  Overrides overrides;
};

std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.name;
}

class DrawnIteration : public ::testing::TestWithParam<Case> {};

TEST_P(DrawnIteration, ShowsEveryByteThatItsGroupsSent) {
  const TempDir dir;
  const Config config =
      seeded_config("gpt2", dir.path(),
                    Overrides{"training.train_iters=2", "scheduler.warmup_iters=0",
                              "logging.trace=true", "runtime.threads_per_rank=1"} +
                        GetParam().overrides);
  const TrainingSummary summary = train(config);
  const Mesh mesh = mesh_of(config.parallel);
  std::map<std::string, std::int64_t> drawn;
  std::map<EventCategory, int> count;
  for (const TimelineEvent& event : summary.timeline.events) {
    ++count[event.category];
    if (event.bytes >= 0) drawn[event.group] += event.bytes;
    EXPECT_GE(event.duration_us, 0) << event.name;
    for (const int rank : event.ranks) {
      EXPECT_GE(rank, 0);
      EXPECT_LT(rank, mesh.world_size()) << event.name;
    }
    if (event.category != EventCategory::transfer) continue;
    // The peer is another stage of the same replica and tensor rank, given by its world rank.
    ASSERT_EQ(event.ranks.size(), 1U) << event.name;
    for (const Group group : {Group::shard, Group::tensor, Group::pipeline}) {
      const bool same = mesh.place(event.rank, group) == mesh.place(event.ranks[0], group);
      EXPECT_EQ(same, group != Group::pipeline) << event.name;
    }
    EXPECT_THAT(event.name, ::testing::EndsWith("rank " + std::to_string(event.ranks[0])));
  }
  for (const auto& [group, bytes] : summary.history[1].bytes_sent) {
    EXPECT_EQ(drawn[group], bytes) << group;
  }
  EXPECT_EQ(count[EventCategory::tensor_parallel] > 0,
            config.parallel.tensor_model_parallel_size > 1);
  EXPECT_GT(count[EventCategory::gradient_reduction], 0);
  EXPECT_EQ(count[EventCategory::weight_gather] > 0, config.zero_optimization.stage > 0);
  EXPECT_GT(count[EventCategory::all_reduce], 0);
  EXPECT_EQ(count[EventCategory::optimizer], config.world_size());
}

TEST(DrawnExchange, HasRowsOfTokensThatGoAndResultsThatComeBack) {
  const TempDir dir;
  const Config config = seeded_config(
      "llama", dir.path(),
      {"model.architecture=mixtral", R"(model.moe={"num_experts": 4, "router_topk": 2})",
       "parallel.data_parallel_size=2", "parallel.expert_model_parallel_size=2",
       "training.train_iters=2", "scheduler.warmup_iters=0", "logging.trace=true",
       "runtime.threads_per_rank=1"});
  std::map<std::string, int> count;
  for (const TimelineEvent& event : train(config).timeline.events) {
    const std::string what = event.name.substr(0, event.name.find(' '));
    if (event.category == EventCategory::token_dispatch) ++count["dispatched by " + what];
    if (event.category == EventCategory::token_combine) ++count["combined by " + what];
  }
  // Of each layer: the numbers of rows, rows, weights and gradients there, results, gradients of
  // rows and of weights back.
  const auto layers = static_cast<int>(config.model.num_layers) * config.world_size() *
                      static_cast<int>(config.batch.gradient_accumulation_steps);
  EXPECT_EQ(count, (std::map<std::string, int>{{"dispatched by all_gather", layers},
                                               {"dispatched by dispatch", 3 * layers},
                                               {"combined by combine", 3 * layers}}));
}

const Overrides all_axes{"parallel.data_parallel_size=2", "parallel.tensor_model_parallel_size=2",
                         "parallel.pipeline_model_parallel_size=2",
                         "zero_optimization.reduce_bucket_size=20000"};

INSTANTIATE_TEST_SUITE_P(
    Layouts, DrawnIteration,
    ::testing::Values(Case{"zero0", all_axes + Overrides{"zero_optimization.stage=0"}},
                      Case{"zero1", all_axes + Overrides{"zero_optimization.stage=1",
                                                         "parallel.sequence_parallel=true"}},
                      Case{"zero2", {"parallel.data_parallel_size=2", "zero_optimization.stage=2"}},
                      Case{"zero3",
                           {"parallel.data_parallel_size=2",
                            "parallel.pipeline_model_parallel_size=2", "zero_optimization.stage=3",
                            "zero_optimization.stage3_param_persistence_threshold=100"}},
                      Case{"pp_dp_tp", all_axes + Overrides{"parallel.rank_order=pp-dp-tp"}}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace trident::testing
