#include "engine/evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

// -log of the softmax, in fp64.
double loss_of(const std::vector<float>& logits, std::int32_t label) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum) - logits[static_cast<std::size_t>(label)];
}

TEST(Evaluator, GivesTheLogitsOfWhichTheMeanLossIsMade) {
  for (const char* model : {"gpt2", "llama"}) {
    const TempDir dir;
    const Config config = seeded_config(model, dir.path());
    on_ranks(config, transport_options(config), [&](Rank& own) {
      const auto batches = synthetic_batches(own.model, 0);
      double total = 0, tokens = 0;
      for (const HostMicroBatch& batch : batches) {
        const std::size_t length = batch.tokens.size() / batch.sample_ids.size();
        for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
          const std::size_t begin = i / length * length;
          const auto logits =
              own.evaluator.next_logits(std::span(batch.tokens).subspan(begin, i + 1 - begin));
          ASSERT_EQ(std::ssize(logits), config.model.vocab_size);
          total += loss_of(logits, batch.labels[i]);
          ++tokens;
        }
      }
      const auto mean = own.evaluator.mean_loss(batches);
      ASSERT_TRUE(mean.has_value());
      EXPECT_NEAR(*mean, total / tokens, 1e-5 * *mean) << model;
    });
  }
}

// The logits don't depend on how a text is split, nor on a return to an earlier position in it.
TEST(Evaluator, ACacheChangesNoLogits) {
  const std::pair<const char*, Overrides> models[] = {
      {"gpt2", {}},
      {"llama", {}},
      {"llama",
       {"model.architecture=qwen3", "model.head_dim=6", "model.sliding_window=2",
        "model.window_layers=[1]"}}};
  for (const auto& [model, overrides] : models) {
    const TempDir dir;
    const Config config = seeded_config(model, dir.path(), overrides);
    on_ranks(config, transport_options(config), [&](Rank& own) {
      const HostMicroBatch batch = synthetic_batches(own.model, 0).front();
      const std::span tokens =
          std::span(batch.tokens).first(batch.tokens.size() / batch.sample_ids.size());
      KeyValueCache cache(config.model.max_position_embeddings);
      for (const auto& [begin, end] :
           {std::pair(0, 3), {3, 4}, {4, 5}, {5, 8}, {4, 7}, {7, 8}, {0, 2}, {2, 3}}) {
        // A layer with a window may have dropped positions that this text still needs.
        const int held = cache.holds_before(begin) ? begin : 0;
        const auto from = static_cast<std::size_t>(held), to = static_cast<std::size_t>(end);
        const auto some = own.evaluator.next_logits(tokens.subspan(from, to - from), cache, held);
        const auto all = own.evaluator.next_logits(tokens.first(to));
        ASSERT_EQ(some.size(), all.size());
        for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(some[i], all[i], 2e-5);
      }
    });
  }
}

TEST(Evaluator, GivesNoLogitsOfAPartOfAModel) {
  for (const Layout& layout : {Layout{1, 2, 1}, Layout{1, 1, 2}}) {
    const TempDir dir;
    const Config config = seeded_config("gpt2", dir.path(), overrides_of(layout));
    on_ranks(config, transport_options(config), [](Rank& own) {
      EXPECT_THROW(own.evaluator.next_logits(std::vector<std::int32_t>{1}), Error);
    });
  }
}

}  // namespace
}  // namespace trident::testing
