// Costs from the trace of a model's modules, compared with the papers' formulas.
#include "engine/setup/model_costs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

ModelCosts costs_of(const Config& config) {
  return model_costs(config, *built_in_architectures().at(config.model.architecture));
}

// A product takes 2 FLOPs for each weight and token. Attention's two products cover the causal
// half; their backward takes two and a half times as many FLOPs.
TEST(ModelCosts, AreTheFlopsOfTheProducts) {
  const TempDir dir;
  for (const std::string model : {"gpt2", "llama"}) {
    SCOPED_TRACE(model);
    // Costs of the whole model don't depend on the layout, in which a rank holds a part.
    const Config config =
        seeded_config(model, dir.path(),
                      overrides_of({2, 2, 2}) +
                          Overrides{"parallel.sequence_parallel=true", "model.vocab_size=509"});
    const ModelConfig& m = config.model;
    const auto h = static_cast<double>(m.hidden_size), f = static_cast<double>(m.ffn_hidden_size);
    const double kv =
        h * static_cast<double>(m.num_query_groups) / static_cast<double>(m.num_attention_heads);
    const auto s = static_cast<double>(config.data.sequence_length);
    const double tokens = s * static_cast<double>(config.batch.micro_batch_size);
    const double weights =
        2 * tokens * (2 * h * h + 2 * h * kv + (model == "llama" ? 3 : 2) * h * f);
    const double attention = 2 * tokens * s * h;

    const ModelCosts costs = costs_of(config);
    ASSERT_EQ(std::ssize(costs.layers), m.num_layers);
    for (const ModuleCost& layer : costs.layers) {
      EXPECT_DOUBLE_EQ(layer.forward, weights + attention);
      EXPECT_DOUBLE_EQ(layer.backward_input, weights + 2.5 * attention);
      EXPECT_DOUBLE_EQ(layer.backward_weight, weights);
    }
    EXPECT_DOUBLE_EQ(costs.embedding.total(), 0);
    // The head counts the vocabulary without padding, and computes its gradients in forward.
    EXPECT_DOUBLE_EQ(costs.head.forward, 3 * 2 * tokens * h * static_cast<double>(m.vocab_size));
    EXPECT_DOUBLE_EQ(costs.head.total(), costs.head.forward);

    Config again = config;
    again.activation_checkpointing.granularity = "full";
    EXPECT_DOUBLE_EQ(costs_of(again).layers[0].backward_input, 2 * weights + 3.5 * attention);
    again.activation_checkpointing.granularity = "selective";
    EXPECT_DOUBLE_EQ(costs_of(again).layers[0].backward_input, weights + 3.5 * attention);

    const StageTimes stages = stage_costs(costs, {1, 3});
    EXPECT_DOUBLE_EQ(stages.forward[0], costs.layers[0].forward);
    EXPECT_DOUBLE_EQ(stages.forward[1], 3 * costs.layers[0].forward + costs.head.forward);
    EXPECT_DOUBLE_EQ(stages.backward_weight[1], 3 * costs.layers[0].backward_weight);
  }
}

// A GPT-2 whose first layer has half as wide an MLP, and whose layers are measured one by one.
class Tapering final : public Architecture {
 public:
  TransformerShape shape(const Config& config) const override { return gpt2_->shape(config); }
  std::unique_ptr<Module> layer(const ParallelContext& parallel, const TransformerShape& shape,
                                int index) const override {
    TransformerShape own = shape;
    if (index == 0) own.ffn /= 2;
    return gpt2_->layer(parallel, own, index);
  }
  const FamilyFormats& formats() const override { return gpt2_->formats(); }

 private:
  std::shared_ptr<const Architecture> gpt2_ = make_gpt2();
};

TEST(ModelCosts, OfLayersThatDifferAreThoseOfEach) {
  const TempDir dir;
  const Config config = seeded_config("gpt2", dir.path(), {});
  const ModelCosts alike = costs_of(config), differ = model_costs(config, Tapering());
  ASSERT_EQ(differ.layers.size(), alike.layers.size());
  const auto h = static_cast<double>(config.model.hidden_size);
  const auto f = static_cast<double>(config.model.ffn_hidden_size);
  const auto tokens =
      static_cast<double>(config.data.sequence_length * config.batch.micro_batch_size);
  // The first layer lacks two matrices of h·f/2, in forward and in both gradients.
  EXPECT_DOUBLE_EQ(differ.layers[0].total(), alike.layers[0].total() - 3 * 2 * tokens * h * f);
  EXPECT_DOUBLE_EQ(differ.model_flops(), alike.model_flops() - 3 * 2 * tokens * h * f);
  for (std::size_t i = 1; i < alike.layers.size(); ++i) {
    EXPECT_EQ(differ.layers[i].total(), alike.layers[i].total());
  }
  EXPECT_EQ(differ.head.total(), alike.head.total());
}

// A step takes 6 FLOPs for each weight of a product and token, and 12·s·h for attention (the full
// square) for each layer and token. For GPT that is 72·B·s·l·h²(1 + s/(6h) + V/(12·l·h)) (Narayanan
// 2021). Recomputation is not counted.
TEST(ModelCosts, OfAStepAreThePapers) {
  const TempDir dir;
  for (const char* granularity : {"none", "selective", "full"}) {
    const Config config = seeded_config(
        "gpt2", dir.path(),
        overrides_of({2, 2, 1}) +
            Overrides{std::string("activation_checkpointing.granularity=") + granularity});
    const auto h = static_cast<double>(config.model.hidden_size);
    const auto l = static_cast<double>(config.model.num_layers);
    const auto V = static_cast<double>(config.model.vocab_size);
    const auto s = static_cast<double>(config.data.sequence_length);
    const auto B = static_cast<double>(config.batch.global_batch_size);
    const double formula = 72 * B * s * l * h * h * (1 + s / (6 * h) + V / (12 * l * h));
    const auto architecture = built_in_architectures().at("gpt2");
    EXPECT_NEAR(flops_per_step(config, *architecture) / formula, 1, 1e-12) << granularity;
    EXPECT_EQ(flops_per_step(config, *architecture, costs_of(config)),
              flops_per_step(config, *architecture))
        << granularity;
  }
}

}  // namespace
}  // namespace trident::testing
