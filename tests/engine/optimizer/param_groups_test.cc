// Runs with optimizer.param_groups and training.ema_decay.
#include "engine/optimizer/param_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/checkpoint_runs.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;

using Tensors = std::map<std::string, HostTensor>;

TEST(ParamGroups, TheFirstPatternThatMatchesCounts) {
  const std::vector<ParamGroup> groups{{.params = "layers.[01].*.bias"}, {.params = "*.bias"}};
  EXPECT_EQ(group_of(groups, "layers.1.mlp.up.bias"), &groups[0]);
  EXPECT_EQ(group_of(groups, "layers.10.mlp.up.bias"), &groups[1]);
  EXPECT_EQ(group_of(groups, "layers.1.mlp.up.weight"), nullptr);
}

// Runs of one step, which is linear in the rate: w' = w - lr·lr_mult·u, with the group's own decay.
class ParamGroupRun : public ::testing::TestWithParam<const char*> {};

TEST_P(ParamGroupRun, RateAndDecayAreThoseOfTheGroup) {
  const TempDir dir;
  const auto weights = [&](const std::string& name, int iterations, const std::string& groups,
                           const Layout& layout = {}) {
    train(run_config(
        dir / name,
        small + Overrides{std::string("optimizer.type=") + GetParam(),
                          "optimizer.params.betas=null", "optimizer.params.eps=null",
                          "optimizer.params.lr=0.01", "optimizer.params.weight_decay=0.1",
                          "optimizer.param_groups=" + groups, "model.num_layers=2",
                          "scheduler.type=constant", "scheduler.warmup_iters=0",
                          "scheduler.min_lr=0", "gradient_clipping=0",
                          "training.train_iters=" + std::to_string(iterations)},
        layout));
    return read_tensors(dir / (name + "/w/model.safetensors"));
  };
  const std::string groups =
      R"([{"params": "layers.0.*", "lr_mult": 0}, {"params": "*.mlp.*", "lr_mult": 2, "weight_decay": 0}])";
  const Tensors before = weights("before", 1, R"([{"params": "*", "lr_mult": 0}])");
  const Tensors usual = weights("usual", 1, "[]"), grouped = weights("grouped", 1, groups);
  // The weights after a step without decay.
  const Tensors bare = weights("bare", 1, R"([{"params": "*", "weight_decay": 0}])");
  for (const auto& [name, tensor] : before) {
    const bool first = name.find(".h.0.") != std::string::npos;
    const bool mlp = name.find(".mlp.") != std::string::npos;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      const double w = tensor.values[i];
      const double want = first ? w
                          : mlp ? w + 2 * (bare.at(name).values[i] - w)
                                : usual.at(name).values[i];
      ASSERT_NEAR(grouped.at(name).values[i], want, 2e-7 + 1e-6 * std::abs(w)) << name << " " << i;
    }
  }
  // Shards give the same. (Other rules are left out: Adam's first step is the sign of the gradient,
  // which may be noise.)
  if (std::string(GetParam()) != "SGD") return;
  const Tensors apart = weights("apart", 1, groups, {.data = 2, .tensor = 2});
  for (const auto& [name, tensor] : grouped) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      ASSERT_NEAR(apart.at(name).values[i], tensor.values[i], 1e-6) << name << " " << i;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(, ParamGroupRun, ::testing::Values("SGD", "AdamW", "Adafactor"));

TEST(ParamGroups, APatternThatMatchesNothingIsRefused) {
  const TempDir dir;
  const auto refused = [&](const std::string& groups) {
    return message_of<RequestError>([&] {
      prepare_training(
          run_config(dir.path(), small + Overrides{"optimizer.param_groups=" + groups}));
    });
  };
  EXPECT_THAT(refused(R"([{"params": "*.bais"}])"),
              HasSubstr("/optimizer/param_groups/0/params: \"*.bais\" matches no parameter"));
  EXPECT_THAT(
      refused(R"([{"params": "*"}, {"params": "*.bias"}])"),
      HasSubstr("/optimizer/param_groups/1/params: \"*.bias\" matches no parameter, or only "
                "parameters of earlier groups; names are embedding.weight, positions.weight"));
  EXPECT_THAT(refused(R"([{"lr_mult": 2}])"), HasSubstr("/optimizer/param_groups/0"));
  EXPECT_THAT(refused(R"([{"params": "*", "lr_mul": 2}])"),
              HasSubstr("/optimizer/param_groups/0/lr_mul: unknown key; there are params, lr_mult, "
                        "weight_decay"));
  EXPECT_THAT(refused(R"([{"params": "*", "lr_mult": -1}])"),
              HasSubstr("/optimizer/param_groups/0/lr_mult: -1 is not a number"));
}

// The average of the weights after each update, computed from runs that end at each of them.
TEST(MovingAverage, IsSavedWithTheWeightsInEveryLayout) {
  const TempDir dir;
  constexpr double decay = 0.75;
  const auto run = [&](const std::string& name, int iterations, const Layout& layout,
                       const Overrides& more) {
    Job(run_config(dir / name,
                   small +
                       Overrides{"model.num_layers=4", "scheduler.decay_iters=4",
                                 "training.train_iters=" + std::to_string(iterations)} +
                       more,
                   layout))
        .run();
    return dir / (name + "/w");
  };
  Tensors average;
  for (int k = 1; k <= 4; ++k) {
    const Tensors now =
        read_tensors(run("to" + std::to_string(k), k, {}, {}) + "/model.safetensors");
    for (const auto& [name, tensor] : now) {
      HostTensor& mean = average[name];
      if (k == 1) mean = tensor;
      for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        mean.values[i] = decay * mean.values[i] + (1 - decay) * tensor.values[i];
      }
    }
  }
  const Overrides averaged{"training.ema_decay=0.75"};
  const std::string unsharded = run("unsharded", 4, {}, averaged);
  EXPECT_EQ(read_file(unsharded + "/model.safetensors"),
            read_file(dir / "to4/w/model.safetensors"));
  EXPECT_LT(largest_relative_distance(read_tensors(unsharded + "/ema/model.safetensors"), average),
            1e-6);
  EXPECT_EQ(read_file(unsharded + "/ema/config.json"), read_file(unsharded + "/config.json"));

  const std::string sharded = run("sharded", 4, {.data = 2, .tensor = 1, .pipeline = 2},
                                  averaged + Overrides{"zero_optimization.stage=2"});
  EXPECT_LT(largest_relative_distance(read_tensors(sharded + "/ema/model.safetensors"), average),
            1e-5);

  // A resumed run has the average of all its updates.
  const Overrides saves = averaged + Overrides{"checkpoint.save_interval=2"};
  run("on", 2, {}, saves);
  EXPECT_EQ(read_file(run("on", 4, {}, saves) + "/ema/model.safetensors"),
            read_file(unsharded + "/ema/model.safetensors"));
}

TEST(MovingAverage, BeginsWithTheWeightsOfACheckpointThatHasNone) {
  const TempDir dir;
  const Overrides saves =
      small + Overrides{"checkpoint.save_interval=2", "scheduler.decay_iters=3"};
  const auto run = [&](int iterations, const Overrides& more) {
    Job(run_config(dir.path(),
                   saves + Overrides{"training.train_iters=" + std::to_string(iterations)} + more))
        .run();
    return read_tensors(dir / "w/model.safetensors");
  };
  const Tensors before = run(2, {}), after = run(3, {"training.ema_decay=0.75"});
  const Tensors average = read_tensors(dir / "w/ema/model.safetensors");
  for (const auto& [name, tensor] : average) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      const double want = 0.75 * before.at(name).values[i] + 0.25 * after.at(name).values[i];
      ASSERT_NEAR(tensor.values[i], want, 1e-6) << name << " " << i;
    }
  }
}

TEST(MovingAverage, ReplacesNoOtherWeights) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "w/ema");
  spit(dir / "w/ema/model.safetensors", "mine");
  const auto begin = [&](const Overrides& more = {}) {
    Job(run_config(dir.path(), small + Overrides{"training.ema_decay=0.5"} + more)).run();
  };
  EXPECT_THAT(message_of<RequestError>([&] { begin(); }),
              HasSubstr("holds ema/model.safetensors of something else"));
  EXPECT_EQ(read_file(dir / "w/ema/model.safetensors"), "mine");
  std::filesystem::remove_all(dir / "w/ema");
  spit(dir / "w/ema", "mine");
  EXPECT_THAT(message_of<RequestError>([&] { begin(); }), HasSubstr("ema there is no directory"));
  std::filesystem::remove(dir / "w/ema");
  begin();
  begin({"logging.overwrite=true"});
  // A run without the average reports that the old one stays.
  std::vector<std::string> messages;
  TrainerHooks hooks;
  hooks.on_message = [&](const std::string& text) { messages.push_back(text); };
  Job(run_config(dir.path(), small + Overrides{"logging.overwrite=true"})).run(hooks);
  EXPECT_THAT(messages, ::testing::Contains(HasSubstr("w/ema stays as it was")));
}

}  // namespace
}  // namespace trident::testing
