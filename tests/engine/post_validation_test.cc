// The optimizer step of schedules whose ranks begin the next iteration before the step check of the
// last one. It gives the same bits as a step that waits, also with clipping, overflows and stops.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "kernels/elementwise.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

constexpr int iterations = 12;
constexpr std::int32_t poison = 7;  // a token

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<bool> applied;
  std::map<std::string, std::vector<float>> weights;  // by name, of data rank 0
  std::int64_t rolled_back = 0;                       // on rank 0; compared separately
  std::int64_t optimistic = 0;                        // results that came an iteration late

  void expect_same(const Outcome& other) const {
    const auto bits = [](const std::vector<double>& values) {
      std::vector<std::uint64_t> all;
      for (const double v : values) all.push_back(std::bit_cast<std::uint64_t>(v));
      return all;
    };
    EXPECT_EQ(bits(losses), bits(other.losses));
    EXPECT_EQ(bits(norms), bits(other.norms));
    EXPECT_EQ(applied, other.applied);
    EXPECT_GT(weights.size(), 10U);
    EXPECT_TRUE(weights == other.weights) << "weights differ";
  }
};

// Sets a row of the token table to infinity, so that any batch with its token overflows.
void poison_row(RankModel& model) {
  for (const Bucket& bucket : model.buckets().buckets()) {
    for (const BucketEntry& entry : bucket.layout.entries) {
      if (entry.parameter->name() != "embedding.weight") continue;
      Context& context = model.context();
      const Tensor weight = entry.parameter->weight();
      const Tensor values = context.empty(weight.shape(), DType::f32, Category::workspace);
      copy(context, weight, values);
      const std::int64_t width = weight.shape()[1];
      fill(context, values.flat(poison * width, width), INFINITY);
      model.buckets().set(context, *entry.parameter, values);
    }
  }
}

// `late`: step checks stay open where the schedule allows it. `poisoned`: iterations whose batches
// have the token.
Outcome run(const std::string& name, const Overrides& overrides, bool late,
            const std::vector<int>& poisoned = {}) {
  const TempDir dir;
  const Config config =
      seeded_config(name, dir.path(),
                    overrides + Overrides{"training.train_iters=" + std::to_string(iterations)});
  Outcome outcome;
  std::mutex mutex;
  on_ranks(config, transport_options(config), [&](Rank& own) {
    EXPECT_TRUE(own.stepper.post_validation());
    poison_row(own.model);
    Outcome mine;
    const auto note = [&](const std::optional<StepResult>& result) {
      if (!result) return;
      mine.losses.push_back(result->loss);
      mine.norms.push_back(result->grad_norm);
      mine.applied.push_back(result->applied);
    };
    for (int k = 0; k < iterations; ++k) {
      auto batches = synthetic_batches(own.model, k);
      for (auto& batch : batches) {
        std::replace(batch.tokens.begin(), batch.tokens.end(), poison, poison + 1);
      }
      if (std::find(poisoned.begin(), poisoned.end(), k) != poisoned.end()) {
        batches.back().tokens[3] = poison;
      }
      const Advance steps = own.stepper.advance(
          batches,
          {.learning_rate = 1e-3 * (k + 1), .close = !late || k + 1 == iterations || k == 5});
      EXPECT_TRUE(steps.ran);
      mine.optimistic += steps.previous.has_value();
      note(steps.previous);
      note(steps.current);
    }
    mine.rolled_back = own.stepper.rolled_back();
    const std::lock_guard lock(mutex);
    if (own.model.topology().of(Group::shard).rank() != 0) return;
    for (const Bucket& bucket : own.model.buckets().buckets()) {
      for (const BucketEntry& entry : bucket.layout.entries) {
        if (entry.parameter->spec().placement.copy) continue;
        const Tensor weight = entry.parameter->weight();
        const Tensor values =
            own.model.context().empty({weight.numel()}, DType::f32, Category::workspace);
        copy(own.model.context(), weight.flat(0, weight.numel()), values);
        mine.weights[entry.parameter->name()] = own.model.context().to_host<float>(values);
      }
    }
    mine.weights.merge(outcome.weights);
    outcome = std::move(mine);
  });
  return outcome;
}

struct Case {
  const char* name;
  Layout layout;
  Overrides overrides;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"zb_h2, pp 3", {1, 1, 3}, {"pipeline.schedule=zb_h2", "model.hidden_dropout=0.1"}},
      {"zb_h2, dp 2, pp 2, ZeRO 1",
       {2, 1, 2},
       {"pipeline.schedule=zb_h2", "zero_optimization.stage=1"}},
      {"zbv, pp 2, bf16, ZeRO 1",
       {2, 1, 2, 2},
       {"pipeline.schedule=zbv", "precision.dtype=bf16", "zero_optimization.stage=1"}},
      {"zbv, pp 4", {1, 1, 4, 2}, {"pipeline.schedule=zbv", "model.num_layers=8"}}};
  return all;
}

TEST(PostValidation, ClippingNowAndThenChangesNoBit) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Overrides base = overrides_of(c.layout) + c.overrides;
    // The median norm as the limit: some norms lie above it, some below.
    std::vector<double> norms = run("llama", base + Overrides{"gradient_clipping=0"}, false).norms;
    std::nth_element(norms.begin(), norms.begin() + iterations / 2, norms.end());
    const Overrides clipped =
        base + Overrides{"gradient_clipping=" + std::to_string(norms[iterations / 2])};
    const Outcome waits = run("llama", clipped, false), late = run("llama", clipped, true);
    late.expect_same(waits);
    EXPECT_EQ(waits.rolled_back, 0);
    EXPECT_EQ(waits.optimistic, 0);
    EXPECT_GT(late.optimistic, 0);
    EXPECT_GT(late.rolled_back, 0);
    EXPECT_LT(late.rolled_back, late.optimistic);
  }
}

TEST(PostValidation, AnOverflowIsRolledBackOnEveryRank) {
  const Overrides skip{"training.on_non_finite=skip", "gradient_clipping=0"};
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Overrides base = overrides_of(c.layout) + c.overrides + skip;
    const std::vector<int> poisoned{2, 3, 8};
    const Outcome waits = run("llama", base, false, poisoned);
    const Outcome late = run("llama", base, true, poisoned);
    std::vector<bool> applied(iterations, true);
    for (const int k : poisoned) applied[static_cast<std::size_t>(k)] = false;
    EXPECT_EQ(waits.applied, applied);
    late.expect_same(waits);
    // The second of two consecutive overflows comes when no update is optimistic.
    EXPECT_EQ(late.rolled_back, 2);
    // Without the overflows the weights are different, so the comparison can fail.
    EXPECT_FALSE(run("llama", base, true).weights == late.weights);
  }
}

TEST(PostValidation, TheNextIterationIsRolledBackWhereTheRunEnds) {
  const TempDir dir;
  const auto weights_after = [&](const std::string& kind, int train_iters, int stop_at,
                                 const Overrides& more) {
    std::atomic<bool> stop = false;
    TrainerHooks hooks{.stop = &stop};
    hooks.on_iteration = [&](IterationMetrics& m) { stop = m.iteration == stop_at; };
    const Config config = seeded_config(
        "llama", dir / "run",
        overrides_of({1, 1, 3}) + more +
            Overrides{"pipeline.schedule=" + kind, "checkpoint.save=" + (dir / "weights"),
                      "checkpoint.resume=never", "scheduler={\"type\": \"constant\"}",
                      "gradient_clipping=0",
                      "training.train_iters=" + std::to_string(train_iters)});
    const TrainingSummary summary = train(config, usual_device(), hooks);
    EXPECT_EQ(summary.stopped, stop_at > 0);
    return std::pair(summary.history.size(), slurp(dir / "weights/model.safetensors"));
  };
  // Iteration 3 is reported when iteration 4 has run, so the trainer sees the flag with the check
  // of 5.
  const auto [steps, stopped] = weights_after("zb_h2", 9, 3, {});
  EXPECT_GE(steps, 4U);
  EXPECT_LE(steps, 5U);
  const auto [all, reference] = weights_after("1f1b", static_cast<int>(steps), 0, {});
  EXPECT_EQ(all, steps);
  EXPECT_TRUE(stopped == reference);
}

TEST(PostValidation, AnOverflowEndsTheRunWithTheIterationThatHadIt) {
  const TempDir dir;
  for (const char* kind : {"zb_h2", "zbv"}) {
    const Config config =
        seeded_config("llama", dir / "run",
                      overrides_of({2, 1, 2, std::string(kind) == "zbv" ? 2 : 1}) +
                          Overrides{std::string("pipeline.schedule=") + kind,
                                    "scheduler={\"type\": \"constant\"}", "gradient_clipping=0",
                                    "optimizer.params.lr=1e30", "training.train_iters=5"});
    const std::string message = message_of<Error>([&] { train(config); });
    EXPECT_NE(message.find("iteration 2:"), std::string::npos) << message;
    EXPECT_NE(message.find("no weight was changed"), std::string::npos) << message;
  }
}

TEST(PostValidation, EvaluationNeedsTheResultOfTheStep) {
  const TempDir dir;
  const Config config = seeded_config(
      "llama", dir.path(),
      overrides_of({1, 1, 2}) + Overrides{"pipeline.schedule=zb_h2", "gradient_clipping=0"});
  on_ranks(config, transport_options(config), [&](Rank& own) {
    const auto batches = synthetic_batches(own.model, 0);
    EXPECT_FALSE(own.stepper.wait_for_result().has_value());
    EXPECT_FALSE(
        own.stepper.advance(batches, {.learning_rate = 1e-3, .close = false}).current.has_value());
    EXPECT_THROW(own.evaluator.mean_loss(batches), Error);
    const auto result = own.stepper.wait_for_result();
    ASSERT_TRUE(result.has_value());
    EXPECT_TRUE(result->applied);
    own.evaluator.mean_loss(batches);
  });
}

// The purpose of post-validation: a rank runs forwards of iteration k+1 while another still works
// on k.
TEST(PostValidation, RanksBeginTheNextIterationBeforeOthersEndTheLast) {
  const auto overlaps = [](bool late) {
    const TempDir dir;
    const Config config = seeded_config(
        "llama", dir.path(),
        overrides_of({1, 1, 3}) + Overrides{"pipeline.schedule=zb_h2", "gradient_clipping=0"});
    constexpr int steps = 10;
    std::vector<std::int64_t> first(steps, INT64_MAX), last(steps, 0);
    std::mutex mutex;
    on_ranks(config, transport_options(config), [&](Rank& own) {
      for (int k = 0; k < steps; ++k) {
        own.stepper.advance(synthetic_batches(own.model, k),
                            {.learning_rate = 1e-3, .close = !late || k + 1 == steps});
        const std::lock_guard lock(mutex);
        const auto& events = own.stepper.trace().events;
        const auto at = static_cast<std::size_t>(k);
        first[at] = std::min(first[at], events.front().begin.wall_ns);
        last[at] = std::max(last[at], events.back().end.wall_ns);
      }
    });
    int count = 0;
    for (std::size_t k = 0; k + 1 < steps; ++k) count += first[k + 1] < last[k];
    return count;
  };
  EXPECT_EQ(overlaps(false), 0);
  EXPECT_GT(overlaps(true), 0);
}

}  // namespace
}  // namespace trident::testing
