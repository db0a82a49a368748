// Tests the statistics that modules report with forward's output: a family whose MLPs add an
// auxiliary loss, a mean and counts, in several layouts.
#include "models/statistics.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/exact_sum.h"
#include "engine/setup/from_config.h"
#include "planner/plan/plan_check.h"
#include "report/iteration_metrics.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float coefficient = 2000;  // outputs are small

struct PenalisedActivations final : SavedActivations {
  SavedActivationsPtr inner;
  Tensor y;
};

// An MLP with the auxiliary loss coefficient · mean(y²) of a token's output y. It reports also the
// largest |y| of a token, as a mean over tokens, and the numbers of outputs below 0 and of others.
class Penalised final : public Module {
 public:
  Penalised(std::unique_ptr<Module> inner, const ParallelContext& parallel, std::int64_t layer)
      : inner_(std::move(inner)), parallel_(parallel), layer_(layer) {}

  std::vector<std::shared_ptr<Parameter>> parameters() const override {
    return inner_->parameters();
  }
  std::vector<std::shared_ptr<Parameter>> backward_parameters() const override {
    return inner_->backward_parameters();
  }
  Tensor forward(Context& context, const MicroBatch& batch, const Tensor& x,
                 SavedActivationsPtr& kept) const override {
    auto saved = std::make_unique<PenalisedActivations>();
    const Tensor y = inner_->forward(context, batch, x, saved->inner);
    // The block adds its residual in place.
    saved->y = context.empty(y.shape(), y.dtype(), Category::activation);
    const std::int64_t rows = y.dim(0), width = y.dim(1);
    const Tensor losses = context.empty({rows}, DType::f64, Category::workspace);
    const Tensor largest = context.empty({rows}, DType::f32, Category::workspace);
    const Tensor counts = context.empty({2}, DType::i64, Category::workspace);
    context.stream().enqueue([=, copy = saved->y](const Access& access) {
      const float* from = data<float>(access, y);
      std::copy_n(from, rows * width, data<float>(access, copy));
      double* const loss = data<double>(access, losses);
      float* const most = data<float>(access, largest);
      std::int64_t* const count = data<std::int64_t>(access, counts);
      count[0] = count[1] = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        double sum = 0;
        most[row] = 0;
        for (std::int64_t i = 0; i < width; ++i) {
          const float value = from[row * width + i];
          sum += static_cast<double>(value) * value;
          most[row] = std::max(most[row], std::abs(value));
          ++count[value < 0 ? 0 : 1];
        }
        loss[row] = coefficient * sum / static_cast<double>(width);
      }
    });
    if (parallel_.counts_rows(rows, batch.batch * batch.sequence)) {
      batch.statistics.add(context, "penalty", layer_, losses);
      batch.statistics.add(context, "largest", layer_, largest);
      batch.statistics.count(context, "signs", layer_, counts);
    }
    kept = std::move(saved);
    return y;
  }
  Tensor backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                        SavedActivationsPtr& kept) const override {
    auto& saved = static_cast<PenalisedActivations&>(*kept);
    const Tensor grad = context.empty(grad_y.shape(), grad_y.dtype(), Category::activation);
    const float factor =
        batch.auxiliary_scale * coefficient * 2 / static_cast<float>(grad_y.dim(1));
    context.stream().enqueue([=, y = std::exchange(saved.y, {})](const Access& access) {
      for (std::int64_t i = 0; i < grad.numel(); ++i) {
        data<float>(access, grad)[i] =
            data<float>(access, grad_y)[i] + factor * data<float>(access, y)[i];
      }
    });
    return inner_->backward_input(context, batch, grad, saved.inner);
  }
  void backward_weight(Context& context, const MicroBatch& batch,
                       SavedActivationsPtr& kept) const override {
    inner_->backward_weight(context, batch, static_cast<PenalisedActivations&>(*kept).inner);
    kept.reset();
  }

 private:
  std::unique_ptr<Module> inner_;
  ParallelContext parallel_;
  std::int64_t layer_;
};

class PenalisedGpt2 final : public Architecture {
 public:
  // `more` counts that stay 0.
  explicit PenalisedGpt2(std::int64_t more = 0) : more_(more) {}
  TransformerShape shape(const Config& config) const override { return gpt2_->shape(config); }
  std::unique_ptr<Module> feed_forward(const ParallelContext& parallel,
                                       const TransformerShape& shape, int index,
                                       const std::string& name) const override {
    auto mlp = Architecture::feed_forward(parallel, shape, index, name);
    if (index == 2) return mlp;  // layers may differ
    return std::make_unique<Penalised>(std::move(mlp), parallel, index);
  }
  std::vector<Statistic> statistics(const TransformerShape& shape) const override {
    std::vector<Statistic> list;
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      if (layer == 2) continue;
      list.push_back({"penalty", StatisticKind::auxiliary_loss, layer});
      list.push_back({"largest", StatisticKind::mean, layer});
      list.push_back({"signs", StatisticKind::count, layer, 2});
    }
    if (more_ > 0) list.push_back({"more", StatisticKind::count, 0, more_});
    return list;
  }
  const FamilyFormats& formats() const override { return gpt2_->formats(); }

 private:
  std::int64_t more_;
  std::shared_ptr<const Architecture> gpt2_ = make_gpt2();
};

Config config_of(const TempDir& dir, const Layout& layout, const Overrides& overrides) {
  Registry registry = built_in_registry();
  registry.architectures["penalised"] = std::make_shared<PenalisedGpt2>();
  return seeded_config("gpt2", dir.path(),
                       Overrides{"model.architecture=penalised", "training.train_iters=6",
                                 "scheduler={\"type\": \"constant\"}", "runtime.threads_per_rank=1",
                                 "training.eval_iters=1", "training.eval_interval=2"} +
                           overrides_of(layout) + overrides,
                       {}, constraints_of(registry));
}

// The metrics as they are written. The run is asked to stop after an iteration, unless that is 0.
std::vector<IterationMetrics> history_of(const Config& config, std::int64_t last = 0) {
  std::vector<IterationMetrics> all;
  std::atomic<bool> stop = false;
  TrainerHooks hooks;
  hooks.stop = &stop;
  hooks.on_iteration = [&](IterationMetrics& m) {
    all.push_back(m);
    if (m.iteration == last) stop = true;
  };
  train(config, On::cpu, hooks);
  return all;
}
std::vector<IterationMetrics> history(const Layout& layout, const Overrides& overrides) {
  const TempDir dir;
  return history_of(config_of(dir, layout, overrides));
}

void expect_same_figures(const std::vector<IterationMetrics>& a,
                         const std::vector<IterationMetrics>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].loss, b[i].loss) << what << ", iteration " << i + 1;
    EXPECT_EQ(a[i].grad_norm, b[i].grad_norm) << what << ", iteration " << i + 1;
    EXPECT_TRUE(a[i].statistics == b[i].statistics) << what << ", iteration " << i + 1;
  }
}

double outputs_of_a_layer(const Config& config) {
  return static_cast<double>(config.batch.global_batch_size * config.data.sequence_length *
                             config.model.hidden_size);
}

TEST(Statistics, AreTheSameInEveryLayoutThatChangesNoBit) {
  const Overrides clipped{"gradient_clipping=1.9", "training.eval_interval=0",
                          "training.train_iters=12"};
  const auto alone = history({}, clipped);
  ASSERT_EQ(alone.size(), 12U);
  for (const IterationMetrics& m : alone) {
    EXPECT_GT(m.statistics.auxiliary_losses.at("penalty"), 0);
    const auto& signs = m.statistics.statistics.at("signs");
    ASSERT_EQ(signs.size(), 4U);
    EXPECT_TRUE(signs[2].empty());
  }
  const std::pair<Layout, Overrides> cases[] = {
      {{1, 1, 2}, {"pipeline.schedule=1f1b"}},
      {{1, 1, 4}, {"pipeline.schedule=gpipe"}},
      {{1, 1, 2, 2}, {}},
      {{1, 1, 2}, {"pipeline.schedule=zb_h2"}},  // rolls updates back
      {{1, 1, 2, 2}, {"pipeline.schedule=zbv"}},
      {{1, 1, 1}, {"activation_checkpointing={\"granularity\": \"full\", \"num_layers\": 2}"}},
      {{1, 1, 2}, {"activation_checkpointing={\"granularity\": \"full\", \"num_layers\": 1}"}}};
  for (const auto& [layout, overrides] : cases) {
    expect_same_figures(history(layout, clipped + overrides), alone,
                        name_of(layout) + (overrides.empty() ? "" : " " + overrides.front()));
  }
}

TEST(Statistics, DataAndTensorRanksAddTheirParts) {
  const TempDir dir;
  const Config config = config_of(dir, {}, {});
  const auto alone = history({}, {});
  const double outputs = outputs_of_a_layer(config);
  const std::pair<Layout, Overrides> cases[] = {
      {{2, 1, 1}, {"zero_optimization.stage=3"}},
      {{1, 2, 1}, {}},
      {{1, 2, 2}, {"parallel.sequence_parallel=true"}},
      {{2, 2, 1}, {"zero_optimization.stage=2", "parallel.sequence_parallel=true"}}};
  for (const auto& [layout, overrides] : cases) {
    const auto found = history(layout, overrides);
    ASSERT_EQ(found.size(), alone.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const StepStatistics &a = found[i].statistics, &b = alone[i].statistics;
      EXPECT_NEAR(a.auxiliary_losses.at("penalty"), b.auxiliary_losses.at("penalty"), 1e-5);
      EXPECT_NEAR(a.statistics.at("largest")[3][0], b.statistics.at("largest")[3][0], 1e-5);
      for (const std::size_t layer : {0, 1, 3}) {
        const auto& signs = a.statistics.at("signs")[layer];
        EXPECT_EQ(signs[0] + signs[1], outputs) << name_of(layout);
        EXPECT_NEAR(signs[0], b.statistics.at("signs")[layer][0], 5) << name_of(layout);
      }
    }
  }
}

// With plain SGD a small step lowers the objective, loss plus auxiliary loss, by lr · |gradient|².
TEST(Statistics, TheGradientIsThatOfTheMeanLossAndTheAuxiliaryLosses) {
  constexpr double rate = 2e-5;
  for (const Layout layout : {Layout{1, 1, 1}, Layout{2, 2, 1}, Layout{1, 1, 2}}) {
    const TempDir dir;
    const Config config = config_of(
        dir, layout,
        {"gradient_clipping=0", "optimizer={\"type\": \"SGD\", \"params\": {\"lr\": 2e-5}}"});
    on_ranks(config, transport_options(config), [&](Rank& own) {
      const auto batches = synthetic_batches(own.model, 0);
      const StepResult first = own.stepper.train(batches, rate);
      const StepResult second = own.stepper.train(batches, rate);
      const auto objective = [](const StepResult& step) {
        return step.loss + step.statistics.auxiliary_losses.at("penalty");
      };
      const double norm = first.grad_norm;
      EXPECT_NEAR((objective(first) - objective(second)) / (rate * norm * norm), 1, 0.02)
          << name_of(layout);
    });
  }
}

// Micro-batches whose forward an earlier iteration ran count in their own iteration.
TEST(Statistics, AnAsynchronousScheduleCountsEachMicroBatchInItsIteration) {
  const TempDir dir;
  for (const char* schedule : {"pipedream", "pipedream_2bw"}) {
    const Layout layout{1, 1, 2};
    const Overrides overrides{std::string("pipeline.schedule=") + schedule,
                              "model.tie_word_embeddings=false", "gradient_clipping=0"};
    const double outputs = outputs_of_a_layer(config_of(dir, layout, overrides));
    const auto found = history(layout, overrides);
    ASSERT_EQ(found.size(), 6U);
    for (const IterationMetrics& m : found) {
      for (const std::size_t layer : {0, 1, 3}) {
        const auto& signs = m.statistics.statistics.at("signs")[layer];
        EXPECT_EQ(signs[0] + signs[1], outputs) << schedule << ", iteration " << m.iteration;
      }
    }
  }
}

// A resumed run repeats the forwards that were in flight, here of two later iterations.
TEST(Statistics, AResumedAsynchronousRunReportsTheSame) {
  const std::pair<const char*, const char*> cases[] = {{"pipedream", "6"}, {"pipedream_2bw", "4"}};
  for (const auto& [schedule, micro_batch] : cases) {
    const Overrides overrides{std::string("pipeline.schedule=") + schedule, "gradient_clipping=0",
                              std::string("batch.micro_batch_size=") + micro_batch,
                              "model.tie_word_embeddings=false", "training.train_iters=8"};
    const Layout layout{1, 1, 4};
    const auto uninterrupted = history(layout, overrides);
    ASSERT_EQ(uninterrupted.size(), 8U);
    const TempDir dir;
    const Config saved = config_of(dir, layout,
                                   overrides + Overrides{"checkpoint.save=" + (dir / "saved"),
                                                         "checkpoint.save_interval=100"});
    auto parts = history_of(saved, 3);
    ASSERT_LT(parts.size(), 8U);
    for (auto& m : history_of(saved)) parts.push_back(std::move(m));
    expect_same_figures(parts, uninterrupted, schedule);
  }
}

TEST(Statistics, MemoryAndTrafficAreAsPlanned) {
  Registry registry = built_in_registry();
  registry.architectures["penalised"] = std::make_shared<PenalisedGpt2>(4000);
  const Overrides overrides{"model.architecture=penalised", "batch.global_batch_size=48"};
  expect_planned({"gpt2", {2, 1, 2}, overrides}, 0, constraints_of(registry));
}

TEST(Statistics, AMetricsLineHasThem) {
  IterationMetrics m;
  EXPECT_FALSE(metrics_line(m).contains("auxiliary_losses"));
  EXPECT_FALSE(metrics_line(m).contains("statistics"));
  m.statistics = {.auxiliary_losses = {{"z", 0.25}}, .statistics = {{"load", {{3, 5}, {}, {0.5}}}}};
  const auto line = metrics_line(m);
  EXPECT_EQ(line["auxiliary_losses"].dump(), R"({"z":0.25})");
  EXPECT_EQ(line["statistics"].dump(), R"({"load":[[3,5],[],[0.5]]})");
  EXPECT_TRUE(metrics_of_line(line).statistics == m.statistics);
  // Other programs may write anything.
  const auto odd = nlohmann::ordered_json::parse(
      R"({"iteration": 1, "auxiliary_losses": [1], "statistics": {"a": 5, "b": [1, ["x", 2]]}})");
  const IterationMetrics read = metrics_of_line(odd);
  EXPECT_TRUE(read.statistics.auxiliary_losses.empty());
  ASSERT_EQ(read.statistics.statistics.size(), 1U);
  const auto& layers = read.statistics.statistics.at("b");
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_TRUE(layers[0].empty());
  EXPECT_TRUE(std::isnan(layers[1][0]));
  EXPECT_EQ(layers[1][1], 2);
}

TEST(Statistics, ATableAddsTheLayersOfAnAuxiliaryLoss) {
  const StatisticTable table({{"z", StatisticKind::auxiliary_loss, 0},
                              {"z", StatisticKind::auxiliary_loss, 3},
                              {"mean", StatisticKind::mean, 1},
                              {"load", StatisticKind::count, 1, 3}});
  std::vector<std::int64_t> sums;
  for (const double value : {0.1, 1e20, -3.0}) {
    ExactSum sum;
    sum.add(value);
    const auto state = sum.state();
    sums.insert(sums.end(), state.begin(), state.end());
  }
  for (const std::int64_t count : {5, 0, 1}) sums.push_back(count);
  const StepStatistics found = table.values(sums, 2);
  EXPECT_EQ(found.auxiliary_losses.at("z"), (0.1 + 1e20) / 2);
  EXPECT_THAT(found.statistics.at("mean"), ElementsAre(IsEmpty(), ElementsAre(-1.5)));
  EXPECT_THAT(found.statistics.at("load"), ElementsAre(IsEmpty(), ElementsAre(5, 0, 1)));
  sums[ExactSum::limbs] = 1;  // a value was not finite
  EXPECT_TRUE(std::isnan(table.values(sums, 2).auxiliary_losses.at("z")));
}

TEST(Statistics, ATableRefusesFiguresThatDontFit) {
  const Statistic good{"load", StatisticKind::count, 1, 4};
  const StatisticTable table({good, {"z", StatisticKind::auxiliary_loss, 0}});
  EXPECT_EQ(table.elements(), 4 + ExactSum::limbs + 1);
  EXPECT_EQ(table.range_of("load", 1).elements, 4);
  EXPECT_THROW(table.range_of("load", 0), Error);
  EXPECT_THROW(StatisticTable({good, good}), Error);
  EXPECT_THROW(StatisticTable({{"a", StatisticKind::count, 0, 0}}), Error);
  EXPECT_THROW(StatisticTable({{"a", StatisticKind::mean, 0, 2}}), Error);
  EXPECT_THROW(StatisticTable({{"a", StatisticKind::mean, -1}}), Error);
}

}  // namespace
}  // namespace trident::testing
