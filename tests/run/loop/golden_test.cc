// Compares GPT-2 and Llama in many layouts with PyTorch and transformers in fp64.
#include <gtest/gtest.h>

#include <ostream>
#include <tuple>

#include "support/covering.h"
#include "support/temp_dir.h"
#include "support/training_run.h"
#include "tests/run/loop/golden_check.h"

namespace trident::testing {

struct GoldenCase {
  std::string model;
  Layout layout;
  int zero = 0;
  bool sequence_parallel = false;
  On on = usual_device();

  std::string name() const {
    return model + "_" + name_of(layout) + "_zero" + std::to_string(zero) +
           (sequence_parallel ? "_sequence_parallel" : "") + (on == On::guarded ? "_guarded" : "");
  }
};
void PrintTo(const GoldenCase& c, std::ostream* out) {
  *out << c.name();
}

namespace {

std::vector<GoldenCase> cases() {
  std::vector<GoldenCase> all;
  const std::string gpt2 = "gpt2";
  for (const std::string& model : {gpt2, std::string("llama")}) {
    int number = 0;
    for (const Layout layout :
         {Layout{1, 1, 1}, Layout{2, 1, 1}, Layout{1, 2, 1}, Layout{1, 1, 2}, Layout{1, 1, 4, 2},
          Layout{2, 2, 2}, Layout{1, 4, 2}, Layout{4, 2, 1}, Layout{3, 1, 2}}) {
      ++number;
      for (const int zero : {0, 1, 2, 3}) {
        // Each layout and stage runs with one of the models; 3D layouts run with both.
        const bool turn = (number + zero) % 2 == (model == gpt2 ? 1 : 0);
        const bool all_axes = layout.data > 1 && layout.tensor > 1 && layout.pipeline > 1;
        if (!turn && !all_axes && !tests_are_full()) continue;
        // Without data parallelism stages 2 and 3 equal stage 1. Small parameters are sharded, too.
        if (zero >= 2 && layout.data == 1) continue;
        for (const bool sequence_parallel : {false, true}) {
          if (sequence_parallel && layout.tensor == 1) continue;
          // Without data parallelism both ZeRO stages run the same code, so half of the
          // combinations suffice.
          if (layout.data == 1 && layout.tensor > 1 && sequence_parallel != (zero == 1)) continue;
          all.push_back({.model = model,
                         .layout = layout,
                         .zero = zero,
                         .sequence_parallel = sequence_parallel});
        }
      }
    }
    all.push_back({.model = model, .layout = {2, 2, 2}, .on = On::guarded});
    all.push_back({.model = model, .layout = {2, 2, 2}, .zero = 3, .on = On::guarded});
    all.push_back({.model = model,
                   .layout = {2, 2, 2},
                   .zero = 1,
                   .sequence_parallel = true,
                   .on = On::guarded});
  }
  return all;
}

// The schedule is that of twenty steps. Tests run the first of them; full tests run all.
Overrides steps() {
  if (tests_are_full()) return {};
  return {usual_device() == On::cuda ? "training.train_iters=6" : "training.train_iters=12",
          "scheduler.decay_iters=20"};
}

class GoldenLayouts : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenLayouts, MatchesLossesGradientsAndNormsWithin1e5) {
  const GoldenCase& c = GetParam();
  const TempDir dir;
  const Config config =
      golden_config(c.model, dir.path(),
                    overrides_of(c.layout) +
                        Overrides{"zero_optimization.stage=" + std::to_string(c.zero),
                                  "zero_optimization.stage3_param_persistence_threshold=0",
                                  std::string("parallel.sequence_parallel=") +
                                      (c.sequence_parallel ? "true" : "false")} +
                        steps());
  ASSERT_EQ(config.world_size(), c.layout.ranks());
  const TrainingSummary summary = train(config, c.on);
  ASSERT_EQ(static_cast<std::int64_t>(summary.history.size()), config.training.train_iters);
  expect_golden(c.model, summary, dir.path());
}

INSTANTIATE_TEST_SUITE_P(All, GoldenLayouts, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name(); });

}  // namespace
}  // namespace trident::testing
