#include "engine/evaluator.h"

#include <fmt/format.h>
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

// A layer with a window has room for two windows, whatever the text's length, and the logits of the
// last token are those of the uncached text.
TEST(Evaluator, ACacheKeepsTwoWindowsOfALayerWithAWindow) {
  constexpr std::int64_t length = 40, window = 3;
  const TempDir dir;
  const Config config =
      seeded_config("llama", dir.path(),
                    {"model.architecture=qwen3", "model.num_layers=3", "model.head_dim=6",
                     fmt::format("model.max_position_embeddings={}", length),
                     fmt::format("model.sliding_window={}", window), "model.window_layers=[0,2]"});
  const std::int64_t row = 2 * config.model.num_query_groups * config.model.head_dim *
                           static_cast<std::int64_t>(sizeof(float));
  on_ranks(config, transport_options(config), [&](Rank& own) {
    Context& context = own.model.context();
    std::vector<std::int32_t> tokens;
    for (std::int32_t t = 0; t < length; ++t) tokens.push_back(t * t % 500);
    const std::vector<float> all = own.evaluator.next_logits(tokens);
    const auto bytes = [&] {
      context.synchronize();
      return context.ledger().figures().current[static_cast<std::size_t>(Category::activation)];
    };
    const std::int64_t before = bytes();
    KeyValueCache cache(length);
    std::vector<float> last;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      last = own.evaluator.next_logits(std::span(tokens).subspan(i, 1), cache,
                                       static_cast<std::int64_t>(i));
      ASSERT_EQ(bytes() - before, (length + 2 * 2 * window) * row) << "after token " << i;
    }
    ASSERT_EQ(last.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(last[i], all[i], 2e-5);
  });
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
