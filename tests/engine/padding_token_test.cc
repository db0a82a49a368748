// model.pad_token_id: its row of the embedding gets no gradient from look-ups, in any layout.
// tests/peers/live_peer.py compares this with transformers.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/files/json.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

// Token 0 is the most frequent token of the golden data.
const Overrides padded{"model.pad_token_id=0"};
constexpr auto kTable = "model.embed_tokens.weight";

std::vector<double> first_row(const HostTensor& table) {
  return {table.values.begin(), table.values.begin() + table.shape.at(1)};
}

bool is_zero(const std::vector<double>& row) {
  return std::ranges::all_of(row, [](double value) { return value == 0; });
}

std::map<std::string, HostTensor> first_gradients(const Layout& layout,
                                                  const Overrides& overrides) {
  const TempDir dir;
  train(golden_config("llama", dir.path(),
                      Overrides{"training.train_iters=1", "scheduler.warmup_iters=0"} +
                          overrides_of(layout) + overrides));
  return read_tensors(dir / "gradients-1.safetensors");
}

TEST(PaddingToken, ItsRowGetsNoGradientAndTheOthersTheirs) {
  for (const auto& [layout, overrides] :
       {std::pair(Layout{1, 1, 1}, Overrides{}), std::pair(Layout{1, 2, 2}, Overrides{}),
        std::pair(Layout{2, 1, 1}, Overrides{"zero_optimization.stage=3"}),
        std::pair(Layout{1, 2, 1}, Overrides{"parallel.sequence_parallel=true"})}) {
    SCOPED_TRACE(name_of(layout));
    auto with = first_gradients(layout, overrides + padded);
    auto without = first_gradients(layout, overrides);
    EXPECT_FALSE(is_zero(first_row(without.at(kTable))));
    EXPECT_TRUE(is_zero(first_row(with.at(kTable))));
    std::fill_n(without.at(kTable).values.begin(), with.at(kTable).shape.at(1), 0.0);
    ASSERT_EQ(with.size(), without.size());
    for (const auto& [name, gradient] : without) {
      EXPECT_EQ(with.at(name).values, gradient.values) << name;
    }
  }
}

TEST(PaddingToken, AFreshRowIsZeroAndLayoutsChangeNoBit) {
  for (const bool tied : {false, true}) {
    const Overrides asked =
        padded +
        Overrides{tied ? "model.tie_word_embeddings=true" : "model.tie_word_embeddings=false",
                  "training.train_iters=4", "scheduler.warmup_iters=2"};
    const Outcome alone = outcome("llama", {1, 1, 1}, asked);
    // No gradient moves a row of zeros. With a tied embedding, the head's part of the gradient
    // does.
    EXPECT_EQ(is_zero(first_row(alone.tensors.at(kTable))), !tied);
    expect_same_bits(outcome("llama", {1, 1, 2}, asked), alone);
    expect_same_bits(outcome("llama", {1, 1, 2, 2}, asked), alone);
    const Outcome split = outcome("llama", {2, 2, 1}, asked);
    EXPECT_EQ(is_zero(first_row(split.tensors.at(kTable))), !tied);
    EXPECT_LT(largest_relative_difference(split.losses, alone.losses), 1e-5);
    expect_same_bits(outcome("llama", {2, 2, 2}, asked + Overrides{"zero_optimization.stage=1"}),
                     split);
    expect_same_bits(outcome("llama", {2, 2, 1},
                             asked + Overrides{"zero_optimization.stage=3",
                                               "zero_optimization.reduce_each_micro_batch=false",
                                               "zero_optimization."
                                               "stage3_param_persistence_threshold=0"}),
                     split);
  }
}

TEST(PaddingToken, ALoadedRowKeepsItsValuesButForWeightDecay) {
  const TempDir dir;
  const Config config =
      golden_config("llama", dir / "run",
                    padded + Overrides{"checkpoint.save=" + (dir / "weights"),
                                       "training.train_iters=5", "scheduler.warmup_iters=2"});
  const TrainingSummary summary = train(config);
  double kept = 1;
  for (const IterationMetrics& m : summary.history) {
    kept *= 1 - m.learning_rate * config.optimizer.params.weight_decay;
  }
  const auto before =
      first_row(read_tensors(config.checkpoint.load + "/model.safetensors").at(kTable));
  const auto after = first_row(read_tensors(dir / "weights/model.safetensors").at(kTable));
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(after[i], before[i] * kept, 1e-6 * std::abs(before[i]));
  }
  EXPECT_EQ(parse_json(slurp(dir / "weights/config.json"), "saved").at("pad_token_id"), 0);
}

}  // namespace
}  // namespace trident::testing
