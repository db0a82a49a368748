// Compares each module on 1, 2 and 4 tensor ranks with the unsharded module, and the unsharded
// module with central differences of an fp64 reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/rng.h"
#include "parallel/transport/transport.h"
#include "support/abort_on_unwind.h"
#include "support/random_normal.h"
#include "tests/models/layer_cases.h"

namespace trident::testing {
namespace {

struct Layout {
  int size = 1;
  bool sequence_parallel = false;
  // Ranks with different experts, and ranks that share each expert; every other such group of ranks
  // has the same experts.
  int expert = 1, expert_tensor = 1;

  int exchange() const { return expert * expert_tensor; }
  std::string text() const {
    return "tensor " + std::to_string(size) + (sequence_parallel ? ", sequence parallel" : "") +
           ", expert " + std::to_string(expert) + " × " + std::to_string(expert_tensor);
  }
};

// Where there are experts, every way to divide them. Five ranks have 3, 3, 3, 3 and 0 of 12 rows.
std::vector<Layout> layouts_of(const LayerCase& layer, const std::vector<Layout>& layouts) {
  if (!layer.has_experts) return layouts;
  std::vector<Layout> all;
  for (const Layout& one : layouts) {
    for (int expert = 1; expert <= one.size; expert *= 2) {
      for (int tensor = 1; expert * tensor <= one.size; tensor *= 2) {
        all.push_back({one.size, one.sequence_parallel, expert, tensor});
      }
    }
  }
  if (layer.shape.experts.shared_ffn == 0) all.push_back({5, false});
  return all;
}

constexpr int kMicroBatches = 2;
constexpr float kLossScale = 0.5f;

// The global values of a run: outputs and input gradients by micro-batch, weight gradients by name.
struct Result {
  std::vector<Values> outputs{kMicroBatches}, input_gradients{kMicroBatches};
  Weights weight_gradients, weights;
};

Values random(std::int64_t n, const std::string& name) {
  Values values(static_cast<std::size_t>(n));
  const std::uint64_t key = random_key(3, name);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_normal(key, i);
  return values;
}
Values random_input(const Placement& placement, int microbatch) {
  return random(placement.global.numel(), "x" + std::to_string(microbatch));
}
Values random_gradient(const Placement& placement, int microbatch) {
  return random(placement.global.numel(), "gradient" + std::to_string(microbatch));
}

reference::Batch random_batch(const TransformerShape& shape, int microbatch) {
  reference::Batch batch{.batch = kBatch, .sequence = kSequence};
  for (std::size_t t = 0; t < batch.rows(); ++t) {
    const auto number = static_cast<std::int32_t>(t) + 5 * microbatch;
    batch.tokens.push_back(number * number % static_cast<std::int32_t>(shape.vocabulary));
    batch.labels.push_back((7 * number + 3) % static_cast<std::int32_t>(shape.vocabulary));
  }
  return batch;
}

Tensor put(Context& context, const Values& values, Shape shape) {
  const std::vector<float> floats(values.begin(), values.end());
  return context.from_host<float>(shape, floats, Category::activation);
}
Values get(Context& context, const Tensor& tensor) {
  const auto floats = context.to_host<float>(tensor);
  return {floats.begin(), floats.end()};
}

MicroBatch micro_batch(Context& context, const TransformerShape& shape, int microbatch) {
  const reference::Batch batch = random_batch(shape, microbatch);
  const std::vector<std::int64_t> samples{100 + microbatch, 3 + 10 * microbatch};
  return {.batch = kBatch,
          .sequence = kSequence,
          .samples = context.from_host<std::int64_t>({kBatch}, samples, Category::activation),
          .tokens = context.from_host<std::int32_t>({kRows}, batch.tokens, Category::activation),
          .labels = context.from_host<std::int32_t>({kRows}, batch.labels, Category::activation),
          .loss_scale = kLossScale,
          .auxiliary_scale = kLossScale};
}

// One rank's module, with weights by the library's own rule, except that none are constant.
struct RankLayer {
  RankLayer(Context& context_of_rank, const LayerCase& layer_case, ParallelContext tensor_parallel)
      : context(context_of_rank),
        layer(layer_case),
        parallel(std::move(tensor_parallel)),
        module(layer.make(parallel, layer.shape)),
        input(layer.input(parallel, layer.shape)),
        output(layer.output(parallel, layer.shape)) {
    for (const auto& parameter : module->parameters()) {
      ParameterSpec spec = parameter->spec();
      spec.initial.deviation = 0.4f;
      const Shape local = spec.placement.local();
      const Values zeros(static_cast<std::size_t>(local.numel()), 0.0);
      parameter->bind_weight(put(context, zeros, local));
      parameter->bind_gradient(0, put(context, zeros, local));
      initialise(context, spec, 11, parameter->weight());
    }
    for (int i = 0; i < kMicroBatches; ++i) {
      batches.push_back(micro_batch(context, layer.shape, i));
    }
  }

  Tensor forward(int i) {
    Tensor x;
    if (input.global.rank() > 0) {
      x = put(context, part_of(random_input(input, i), input), input.local());
    }
    return module->forward(context, batches[index(i)], x, all_saved[index(i)]);
  }
  Tensor backward_input(int i) {
    Tensor grad_y;
    if (!layer.ends_model) {
      grad_y = put(context, part_of(random_gradient(output, i), output), output.local());
    }
    return module->backward_input(context, batches[index(i)], grad_y, all_saved[index(i)]);
  }
  void backward_weight(int i) {
    module->backward_weight(context, batches[index(i)], all_saved[index(i)]);
    EXPECT_EQ(all_saved[index(i)], nullptr) << "the record must be freed";
  }
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  Context& context;
  const LayerCase& layer;
  ParallelContext parallel;
  std::unique_ptr<Module> module;
  Placement input, output;
  std::vector<MicroBatch> batches;
  std::vector<SavedActivationsPtr> all_saved{kMicroBatches};
};

// The unsharded run, one micro-batch after the other.
Result run_unsharded(LayerCase layer) {
  layer.shape.padded_vocabulary = layer.shape.vocabulary;
  Result result;
  const auto device = make_cpu_device();
  Context context(*device, 1);
  RankLayer rank(context, layer, {});
  for (int i = 0; i < kMicroBatches; ++i) {
    const auto at = static_cast<std::size_t>(i);
    result.outputs[at] = get(context, rank.forward(i));
    const Tensor gradient = rank.backward_input(i);
    if (gradient) result.input_gradients[at] = get(context, gradient);
    rank.backward_weight(i);
  }
  for (const auto& parameter : rank.module->parameters()) {
    result.weights[parameter->name()] = get(context, parameter->weight());
    result.weight_gradients[parameter->name()] = get(context, parameter->gradient(0));
  }
  return result;
}

double distance(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}
double size_of_vector(const Values& values) {
  return distance(values, Values(values.size(), 0.0));
}

// Compares by the norm of the difference over the norm. NaN fails.
void expect_close(const Values& got, const Values& want, double limit, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const double norm = size_of_vector(want);
  EXPECT_LT(distance(got, want) / (norm == 0 ? 1 : norm), limit) << what;
}

// Runs the sharded module with both micro-batches in flight at once, which end in another order
// than they began, and gathers the shards of all ranks. Every rank's copy of a replicated tensor
// must be the same.
Result run_sharded(const LayerCase& layer, const Layout& layout) {
  Result result;
  std::mutex mutex;
  const auto device = make_cpu_device();
  run_local(layout.size, {}, [&](Transport& transport) {
    Context context(*device, 1);
    const AbortOnUnwind abort(transport);
    // Consecutive ranks exchange tokens; those at one place of their exchanges have one expert.
    const int number = transport.world().rank();
    const ProcessGroup exchange =
        transport.world().split(number / layout.exchange(), number, "exchange");
    const ProcessGroup alike = transport.world().split(number % layout.exchange(), number, "alike");
    const ParallelContext parallel({.tensor = transport.world(),
                                    .rank = transport.world().rank(),
                                    .size = layout.size,
                                    .sequence_parallel = layout.sequence_parallel,
                                    .exchange = exchange,
                                    .exchange_rank = exchange.rank(),
                                    .expert = layout.expert,
                                    .expert_tensor = layout.expert_tensor});
    RankLayer rank(context, layer, parallel);
    const auto gather = [&](const Tensor& tensor, const Placement& placement, Values& full,
                            const std::string& name) {
      const Values part = get(context, tensor);
      ASSERT_EQ(part.size(), static_cast<std::size_t>(placement.numel()));
      const std::lock_guard lock(mutex);
      if (!placement.is_sharded() && !full.empty()) {
        EXPECT_EQ(distance(part, full), 0)
            << name << ": rank " << transport.world().rank() << " holds another copy";
      }
      place(part, placement, full);
    };
    for (const int i : {0, 1}) {
      gather(rank.forward(i), rank.output, result.outputs[static_cast<std::size_t>(i)], "output");
    }
    for (const int i : {1, 0}) {
      const Tensor gradient = rank.backward_input(i);
      if (!gradient) continue;
      gather(gradient, rank.input, result.input_gradients[static_cast<std::size_t>(i)],
             "input gradient");
    }
    for (const int i : {0, 1}) rank.backward_weight(i);
    for (const auto& parameter : rank.module->parameters()) {
      const ParameterSpec& spec = parameter->spec();
      const Tensor& gradient = parameter->gradient(0);
      if (spec.placement.data.are_of_expert()) alike.all_reduce(context, gradient);
      if (std::ranges::count(spec.placement.partial, Group::tensor) > 0) {
        parallel.layer_group().all_reduce(context, gradient);
      }
      Values *weight = nullptr, *sum = nullptr;
      {
        const std::lock_guard lock(mutex);
        weight = &result.weights[spec.name];
        sum = &result.weight_gradients[spec.name];
      }
      gather(parameter->weight(), spec.placement, *weight, spec.name);
      gather(gradient, spec.placement, *sum, spec.name + " gradient");
      // The padding of the vocabulary gets no gradient.
      Values kept;
      const Values part = get(context, gradient);
      place(part, spec.placement, kept);
      EXPECT_EQ(distance(part, part_of(kept, spec.placement)), 0) << spec.name << ": padding";
    }
  });
  return result;
}

void expect_same(const Result& got, const Result& want) {
  for (std::size_t i = 0; i < kMicroBatches; ++i) {
    const std::string at = " of micro-batch " + std::to_string(i);
    expect_close(got.outputs[i], want.outputs[i], 1e-5, "output" + at);
    expect_close(got.input_gradients[i], want.input_gradients[i], 1e-5, "input gradient" + at);
  }
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (const auto& [name, weight] : want.weights) {
    EXPECT_EQ(got.weights.at(name), weight) << name;
    expect_close(got.weight_gradients.at(name), want.weight_gradients.at(name), 1e-5, name);
  }
}

class LayerTest : public ::testing::TestWithParam<LayerCase> {};

TEST_P(LayerTest, EveryTensorLayoutGivesTheUnshardedOutputAndGradients) {
  const Result want = run_unsharded(GetParam());
  for (const Layout layout : layouts_of(
           GetParam(), {{1, false}, {1, true}, {2, false}, {2, true}, {4, false}, {4, true}})) {
    SCOPED_TRACE(layout.text());
    expect_same(run_sharded(GetParam(), layout), want);
  }
}

TEST_P(LayerTest, DropoutMasksAreTheSameInEveryLayout) {
  LayerCase layer = GetParam();
  const Result without = run_unsharded(layer);
  layer.shape.hidden_dropout = 0.25f;
  layer.shape.attention_dropout = 0.4f;
  const Result want = run_unsharded(layer);
  const bool drops = layer.name.starts_with("Block") || layer.name.starts_with("Attention") ||
                     layer.name.starts_with("Embedding");
  EXPECT_EQ(drops, distance(want.outputs[0], without.outputs[0]) > 0) << "dropout changes nothing";
  for (const Layout layout : {Layout{2, false}, Layout{2, true}, Layout{4, true}}) {
    SCOPED_TRACE(layout.text());
    expect_same(run_sharded(layer, layout), want);
  }
}

TEST_P(LayerTest, GradientsAreTheNumericOnesOfAnFp64Reference) {
  const LayerCase& layer = GetParam();
  const Result got = run_unsharded(layer);
  Weights weights = got.weights, weight_gradients;
  const Placement input = layer.input({}, layer.shape), output = layer.output({}, layer.shape);
  for (int i = 0; i < kMicroBatches; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const reference::Batch batch = random_batch(layer.shape, i);
    Values x = input.global.rank() > 0 ? random_input(input, i) : Values();
    expect_close(got.outputs[at], layer.forward(layer.shape, weights, batch, x), 1e-5, "output");

    const Values grad_y = layer.ends_model ? Values(kRows, kLossScale) : random_gradient(output, i);
    const auto objective = [&] {
      const Values y = layer.forward(layer.shape, weights, batch, x);
      double total = 0;
      for (std::size_t j = 0; j < y.size(); ++j) total += grad_y[j] * y[j];
      if (layer.auxiliary) total += kLossScale * layer.auxiliary(layer.shape, weights, batch, x);
      return total;
    };
    expect_close(got.input_gradients[at], reference::numeric_gradient(x, objective), 1e-4,
                 "input gradient");
    for (auto& [name, weight] : weights) {
      const Values gradient = reference::numeric_gradient(weight, objective);
      Values& total = weight_gradients[name];
      total = total.empty() ? gradient : reference::sum(total, gradient);
    }
  }
  for (const auto& [name, gradient] : weight_gradients) {
    expect_close(got.weight_gradients.at(name), gradient, 1e-4, name);
  }
}

TEST(ExpertsShape, CapacityIsTheCeilingOfTheShareOfASample) {
  const auto capacity = [](double factor, std::int64_t topk, std::int64_t experts,
                           std::int64_t sequence) {
    ExpertsShape shape{.router = {.experts = experts, .topk = topk}};
    shape.capacity_factor = factor;
    return shape.capacity(sequence);
  };
  EXPECT_EQ(capacity(1, 2, 4, 6), 3);
  EXPECT_EQ(capacity(0.7, 2, 4, 6), 3);  // 2.1
  EXPECT_EQ(capacity(1, 1, 8, 4), 1);    // 0.5
  EXPECT_EQ(capacity(1.1, 1, 4, 3200), 880);
  EXPECT_EQ(capacity(100, 2, 4, 6), 6);
  const ExpertsShape some{.layers = {1, 4}};
  EXPECT_TRUE(some.has(4));
  EXPECT_FALSE(some.has(2));
}

INSTANTIATE_TEST_SUITE_P(Models, LayerTest, ::testing::ValuesIn(layer_cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace trident::testing
