// Runs that resume from the CPU on a GPU, and back.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/temp_dir.h"
#include "tests/checkpoint/checkpoint_runs.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;

// A GPU's kernels add in another order, and its 16-bit products round at other places. Measured
// over 12 iterations with a change of device after every third one: fp32 1.3e-9, Adafactor 1.9e-9,
// bf16 5.8e-6, fp16 5.4e-7.
TEST(ChangeOfDevice, FollowsTheRunThatStayed) {
  const std::map<std::string, std::pair<Overrides, double>> kinds{
      {"fp32", {{}, 1e-6}},
      {"Adafactor",
       {{"optimizer.type=Adafactor", "optimizer.params.betas=null", "optimizer.params.eps=null"},
        1e-7}},
      {"bf16", {{"precision.dtype=bf16"}, 5e-4}},
      {"fp16", {{"precision.dtype=fp16", "precision.loss_scale_window=3"}, 1e-4}}};
  for (const auto& [name, kind] : kinds) {
    SCOPED_TRACE(name);
    const TempDir stayed, moving;
    const Overrides each = small + kind.first + Overrides{"training.train_iters=12"};
    const Layout layout{.data = 2};
    const std::vector<double> expected =
        losses_of(train(run_config(stayed.path(), each, layout), On::cpu));
    std::string messages;
    for (const int last : {3, 6, 9, 0}) {
      Messages here;
      const On device = last == 3 || last == 9 ? On::cpu : On::cuda;
      train(run_config(moving.path(), each + Overrides{"zero_optimization.stage=1"}, layout),
            device, here.hooks(last));
      messages += here.all();
    }
    EXPECT_THAT(messages, HasSubstr("iteration 9 of run"));
    std::vector<double> losses;
    for (const auto& line : read_metrics(moving.path() + "/log/metrics.jsonl")) {
      losses.push_back(line["loss"]);
    }
    ASSERT_EQ(losses.size(), expected.size());
    const double difference = largest_relative_difference(losses, expected);
    RecordProperty(name, fmt::format("{:.1e}", difference));
    EXPECT_GT(difference, 0) << "it has not moved";
    EXPECT_LT(difference, kind.second);
  }
}

}  // namespace
}  // namespace trident::testing
