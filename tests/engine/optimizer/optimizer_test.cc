// Update rules against fp64, the loss scale, and the global gradient norm.
#include "engine/optimizer/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/gradient_norm.h"
#include "engine/loss_scale.h"
#include "engine/optimizer/optimizer_registry.h"
#include "engine/setup/from_config.h"
#include "engine/step_check.h"
#include "kernels/elementwise.h"
#include "parallel/topology.h"
#include "parallel/transport/transport.h"
#include "parallel/zero/buckets.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

// The update in fp64, as torch.optim.AdamW and torch.optim.SGD with decoupled decay compute it.
struct Truth {
  double weight = 0, first = 0, second = 0;
  void adamw(const OptimizerParams& p, double g, double lr, double decay, int step) {
    first = p.betas[0] * first + (1 - p.betas[0]) * g;
    second = p.betas[1] * second + (1 - p.betas[1]) * g * g;
    weight -= lr * decay * weight;
    const double m = first / (1 - std::pow(p.betas[0], step));
    const double v = second / (1 - std::pow(p.betas[1], step));
    weight -= lr * m / (std::sqrt(v) + p.eps);
  }
  void sgd(const OptimizerParams& p, double g, double lr, double decay, int step) {
    first = step == 1 ? g : p.momentum * first + g;
    weight -= lr * decay * weight;
    weight -= lr * (p.momentum > 0 ? first : g);
  }
};

TEST(UpdateRules, TenStepsWithClippingAndDecayMatchFp64) {
  const auto device = make_cpu_device();
  Context context(*device, 1);
  constexpr std::int64_t n = 777;
  for (const OptimizerConfig& config :
       {OptimizerConfig{"AdamW", {.lr = 0.01, .betas = {0.9, 0.95}, .weight_decay = 0.1}},
        OptimizerConfig{"SGD", {.lr = 0.01, .weight_decay = 0.1, .momentum = 0.9}},
        OptimizerConfig{"SGD", {.lr = 0.01, .weight_decay = 0.0, .momentum = 0.0}}}) {
    for (const bool decays : {true, false}) {
      SCOPED_TRACE(config.type + (decays ? " decays" : ""));
      const auto rule = find_row(optimizer_registry(), config.type)->make(config.params);
      std::mt19937 random(5);
      std::normal_distribution<float> normal;
      std::vector<float> start(n);
      for (float& w : start) w = normal(random);
      const Parameter parameter(
          {.name = "x", .placement = Placement::replicated(decays ? Shape{1, n} : Shape{n})});
      UpdatePart part{.range = {&parameter, 0, n, 0, n},
                      .weight = context.from_host<float>({n}, start, Category::parameter)};
      for (const StateSpec& state : rule->states(part.range.parameter->spec())) {
        const std::int64_t size = state.count(part.range);
        part.state.push_back(context.empty({size}, DType::f32, Category::optimizer));
        fill(context, part.state.back(), 0);
      }
      std::vector<Truth> truth(n);
      for (std::size_t i = 0; i < n; ++i) truth[i].weight = start[i];
      for (int step = 1; step <= 10; ++step) {
        std::vector<float> g(n);
        for (float& x : g) x = normal(random);
        const double lr = config.params.lr * step / 10;
        part.gradient = context.from_host<float>({n}, g, Category::gradient);
        rule->update(
            context, {part},
            {.learning_rate = static_cast<float>(lr), .gradient_scale = 0.25f, .step = step});
        const double decay = decays ? config.params.weight_decay : 0;
        for (std::size_t i = 0; i < n; ++i) {
          if (config.type == "AdamW") truth[i].adamw(config.params, 0.25 * g[i], lr, decay, step);
          if (config.type == "SGD") truth[i].sgd(config.params, 0.25 * g[i], lr, decay, step);
        }
      }
      const std::vector<float> got = context.to_host<float>(part.weight);
      double largest = 0, moved = 0;
      for (std::size_t i = 0; i < n; ++i) {
        largest = std::max(largest, std::abs(got[i] - truth[i].weight));
        moved = std::max(moved, std::abs(truth[i].weight - static_cast<double>(start[i])));
      }
      EXPECT_LT(largest, 2e-6);
      EXPECT_GT(moved, 1e-2);
    }
  }
}

// Two matrices on four ranks: two groups shard the first one, and only the first group shards the
// second.
class ShardedByTwoGroups {
 public:
  ShardedByTwoGroups(Context& context, const Topology& topology) : context_(context) {
    const auto add = [&](const std::string& name, Placement placement) {
      parameters_.push_back(
          std::make_shared<Parameter>(ParameterSpec{.name = name, .placement = placement}));
      parameters_.back()->add_use();
    };
    const int row = topology.place(Group::tensor), column = topology.place(Group::pipeline);
    add("both", Placement::replicated(shape)
                    .shard(0, Group::tensor, {shape.dim(0)}, row, 2)
                    .shard(1, Group::pipeline, {shape.dim(1)}, column, 2));
    add("one", Placement::replicated(shape).shard(0, Group::tensor, {shape.dim(0)}, row, 2));
    buckets_.emplace(context, std::vector<ParameterGroup>{parameters_}, BucketOptions{}, topology);
    buckets_->keep_masters(context);
    for (Bucket& bucket : buckets_->buckets()) {
      bucket.gradient = context.empty({bucket.count}, DType::f32, Category::gradient);
    }
  }
  // Runs two updates. Each element's weight and gradient follow from its index in the full matrix.
  void update_twice(const Topology& topology, const OptimizerConfig& config) {
    Optimizer optimizer(context_, *buckets_,
                        find_row(optimizer_registry(), config.type)->make(config.params), topology);
    for (const auto& parameter : parameters_) buckets_->set(context_, *parameter, held(*parameter));
    for (int step = 0; step < 2; ++step) {
      for (Bucket& bucket : buckets_->buckets()) {
        fill(context_, bucket.gradient, 0);
        for (const BucketEntry& entry : bucket.layout.entries) {
          copy(context_, held(*entry.parameter).flat(0, entry.numel),
               bucket.gradient.flat(entry.offset, entry.numel));
        }
      }
      optimizer.step(context_, *buckets_, 0.01F, 0.5F);
    }
  }
  // Expects that every local element equals its element of the unsharded result.
  void expect_part_of(const std::vector<float>& unsharded) const {
    for (const auto& parameter : parameters_) {
      const auto local = context_.to_host<float>(parameter->weight());
      for (const LocalSlice& held : parameter->spec().placement.slices()) {
        each_range(held, shape.dim(1), [&](std::int64_t at, std::int64_t from, std::int64_t n) {
          for (std::int64_t i = 0; i < n; ++i) {
            ASSERT_EQ(local[static_cast<std::size_t>(at + i)],
                      unsharded[static_cast<std::size_t>(from + i)])
                << parameter->name();
          }
        });
      }
    }
  }

  static inline const Shape shape{6, 10};
  static float value(std::int64_t i) { return 0.1F * static_cast<float>(i % 17) - 0.7F; }

 private:
  Tensor held(const Parameter& parameter) {
    const Placement& placement = parameter.spec().placement;
    std::vector<float> values(static_cast<std::size_t>(placement.numel()));
    for (const LocalSlice& held : placement.slices()) {
      each_range(held, shape.dim(1), [&](std::int64_t at, std::int64_t from, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) {
          values[static_cast<std::size_t>(at + i)] = value(from + i);
        }
      });
    }
    return context_.from_host<float>(placement.local(), values, Category::workspace);
  }

  Context& context_;
  std::vector<std::shared_ptr<Parameter>> parameters_;
  std::optional<ParameterBuckets> buckets_;
};

// All elements in one contiguous range, updated as above.
std::vector<float> updated_unsharded(Context& context, const OptimizerConfig& config) {
  const auto rule = find_row(optimizer_registry(), config.type)->make(config.params);
  const Shape shape = ShardedByTwoGroups::shape;
  const Parameter parameter({.name = "x", .placement = Placement::replicated(shape)});
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = ShardedByTwoGroups::value(static_cast<std::int64_t>(i));
  }
  UpdatePart part{
      .range = {&parameter, 0, shape.numel(), 0, shape.numel()},
      .weight = context.from_host<float>({shape.numel()}, values, Category::parameter),
      .gradient = context.from_host<float>({shape.numel()}, values, Category::gradient)};
  for (const KeptState& kept : kept_states(*rule, part.range)) {
    part.state.push_back(context.empty({kept.count}, kept.spec.dtype, Category::optimizer));
    fill(context, part.state.back(), kept.spec.initial);
  }
  for (int step = 1; step <= 2; ++step) {
    rule->update(context, {part}, {.learning_rate = 0.01F, .gradient_scale = 0.5F, .step = step});
  }
  return context.to_host<float>(part.weight);
}

void on_four_ranks(const std::function<void(Context&, const Topology&)>& body) {
  const std::vector<MeshAxis> axes{{.name = "tp", .size = 2, .groups = {Group::tensor}},
                                   {.name = "pp", .size = 2, .groups = {Group::pipeline}}};
  run_local(4, {}, [&](Transport& transport) {
    const Topology topology = make_topology(transport.world(), Mesh(axes), transport.nodes());
    const auto device = make_cpu_device();
    Context context(*device, 1);
    body(context, topology);
  });
}

TEST(Optimizer, UpdatesParametersShardedByTwoGroupsIfTheRuleNeedsNoSums) {
  for (const OptimizerConfig& config :
       {OptimizerConfig{"AdamW", {.betas = {0.9, 0.95}, .weight_decay = 0.1}},
        OptimizerConfig{"SGD", {.weight_decay = 0.1, .momentum = 0.9}}}) {
    SCOPED_TRACE(config.type);
    on_four_ranks([&](Context& context, const Topology& topology) {
      ShardedByTwoGroups parameters(context, topology);
      parameters.update_twice(topology, config);
      parameters.expect_part_of(updated_unsharded(context, config));
    });
  }
}

TEST(Optimizer, RefusesParametersShardedByTwoGroupsIfTheRuleNeedsSums) {
  EXPECT_THAT(
      [] {
        on_four_ranks([](Context& context, const Topology& topology) {
          ShardedByTwoGroups(context, topology).update_twice(topology, {"Adafactor", {}});
        });
      },
      ::testing::ThrowsMessage<Error>(::testing::AllOf(::testing::HasSubstr("sharded by 'tensor'"),
                                                       ::testing::HasSubstr("by 'pipeline'"))));
}

TEST(LossScale, HalvesAfterHysteresisAndDoublesAfterAWindow) {
  LossScale scale({.dtype = "fp16",
                   .initial_scale_power = 4,
                   .loss_scale_window = 3,
                   .hysteresis = 2,
                   .min_loss_scale = 4});
  EXPECT_EQ(scale.value(), 16);
  const auto after = [&](const char* steps) {  // o: overflow
    for (const char* s = steps; *s != 0; ++s) scale.update(*s == 'o');
    return scale.value();
  };
  EXPECT_EQ(after("o"), 16);  // the hysteresis excuses one overflow
  EXPECT_EQ(after("o"), 8);
  EXPECT_EQ(after("o"), 4);  // the hysteresis excuses no more before a clean window
  EXPECT_FALSE(scale.excuses_overflow());
  EXPECT_EQ(after("o"), 4);  // the minimum
  EXPECT_EQ(after(".."), 4);
  EXPECT_EQ(after("o..."), 8);  // an overflow begins a new window
  EXPECT_TRUE(scale.excuses_overflow());
  EXPECT_EQ(after("o"), 8);  // the window has restored the hysteresis
  EXPECT_EQ(after("...o..o"), 8);
  EXPECT_EQ(LossScale({.dtype = "bf16"}).value(), 1);
  LossScale fixed({.dtype = "fp16", .loss_scale = 128});
  fixed.update(true);
  EXPECT_EQ(fixed.value(), 128);
  EXPECT_FALSE(fixed.excuses_overflow());
}

// Every data-parallel rank has the same gradients, as after an all-reduce.
double norm_of(const Layout& layout, const Overrides& overrides, double scale) {
  const TempDir dir;
  const Config config = seeded_config("gpt2", dir.path(), overrides_of(layout) + overrides);
  double norm = 0;
  on_ranks(config, transport_options(config), [&](Rank& own) {
    Context& context = own.model.context();
    for (const auto& parameter : unique_parameters(own.model.chunks())) {
      const ParameterSpec& spec = parameter->spec();
      std::mt19937 random(static_cast<unsigned>(std::hash<std::string>{}(spec.name)));
      std::normal_distribution<float> normal;
      std::vector<float> values(static_cast<std::size_t>(spec.placement.numel()));
      for (float& v : values) v = static_cast<float>(scale) * normal(random);
      copy(context, context.from_host<float>(spec.placement.local(), values, Category::workspace),
           parameter->gradient(0));
    }
    StepCheck check(own.model.topology().world, own.model.topology().of(Group::shard).size(),
                    own.model.statistics());
    check.begin(context, gradient_squares(context, own.model.buckets(), own.model.topology()), {},
                nullptr, 0, {}, {}, Async::no);
    const double found = check.end(context).grad_norm;
    if (own.model.topology().world.rank() == 0) norm = found;
  });
  return norm;
}

TEST(GradientNorm, IsBitwiseIdenticalForAnyShardingOfGradients) {
  const double plain = norm_of({1, 1, 1}, {}, 1);
  EXPECT_GT(plain, 100);  // sqrt of about 140,000 parameters of variance 1
  for (const Layout layout : {Layout{2, 1, 1}, Layout{3, 1, 1}, Layout{4, 1, 1}}) {
    for (const char* size : {"1", "3000", "5000000"}) {
      EXPECT_EQ(norm_of(layout,
                        {std::string("zero_optimization.reduce_bucket_size=") + size,
                         "zero_optimization.stage=1"},
                        1),
                plain)
          << name_of(layout) << " " << size;
    }
  }
  EXPECT_TRUE(std::isnan(norm_of({2, 1, 1}, {}, INFINITY)));
}

}  // namespace
}  // namespace trident::testing
