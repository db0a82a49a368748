// The state that a run needs to resume. It is complete, contains each element once, and suffices to
// resume in this layout or another.
#include "parallel/state.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "engine/optimizer/learning_rate.h"
#include "engine/setup/from_config.h"
#include "kernels/elementwise.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

// A store of full tensors on the host, which counts how often each element was written.
class Store {
 public:
  void save(Stepper& stepper, std::int64_t iteration) {
    State state = stepper.state();
    const std::lock_guard lock(mutex_);
    for (const StateTensor& tensor : state.tensors) {
      if (!tensor.holder.is_primary()) continue;
      FullTensor& full = tensors_[key(tensor)];
      full.values.resize(static_cast<std::size_t>(tensor.placement.global.numel()));
      full.times.resize(full.values.size());
      Context& context = stepper.context();
      const Tensor values = context.empty(tensor.tensor.shape(), DType::f32, Category::workspace);
      copy(context, tensor.tensor, values);
      const std::vector<float> local = context.to_host<float>(values);
      each(tensor, [&](std::size_t at, std::size_t to) {
        full.values[to] = local[at];
        ++full.times[to];
      });
    }
    for (const StateNumber& number : state.numbers) {
      numbers_[number.name] = std::visit(
          [](const auto* v) { return std::variant<std::int64_t, double>(*v); }, number.value);
    }
    numbers_["iteration"] = iteration;
    numbers_["skipped"] = std::int64_t{0};
  }

  void restore(Context& context, State& state) const {
    for (StateTensor& tensor : state.tensors) {
      if (tensor.kind != StateKind::master && tensor.kind != StateKind::optimizer) continue;
      const FullTensor& full = tensors_.at(key(tensor));
      std::vector<float> local(static_cast<std::size_t>(tensor.tensor.numel()));
      each(tensor, [&](std::size_t at, std::size_t from) { local[at] = full.values[from]; });
      context.copy_from_host(tensor.tensor, std::as_bytes(std::span(local)));
    }
    for (StateNumber& number : state.numbers) {
      std::visit([&]<class T>(T* value) { *value = std::get<T>(numbers_.at(number.name)); },
                 number.value);
    }
  }

  void expect_each_element_once() const {
    for (const auto& [name, full] : tensors_) {
      for (std::size_t i = 0; i < full.times.size(); ++i) {
        ASSERT_EQ(full.times[i], 1) << name << " element " << i;
      }
    }
  }
  std::map<std::string, std::size_t> sizes() const {
    std::map<std::string, std::size_t> sizes;
    for (const auto& [name, full] : tensors_) sizes[name] = full.values.size();
    return sizes;
  }

 private:
  struct FullTensor {
    std::vector<float> values;
    std::vector<int> times;
  };
  static std::string key(const StateTensor& tensor) {
    return tensor.name + " of " + tensor.parameter->name();
  }
  template <class Visit>
  static void each(const StateTensor& tensor, const Visit& visit) {
    const Shape& global = tensor.placement.global;
    const std::int64_t columns = global.rank() == 1 ? 1 : global.dim(1);
    for (const LocalSlice& held : tensor.placement.slices(tensor.begin, tensor.tensor.numel())) {
      each_range(held, columns, [&](std::int64_t local, std::int64_t full, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          visit(static_cast<std::size_t>(local + i - tensor.begin),
                static_cast<std::size_t>(full + i));
        }
      });
    }
  }

  std::mutex mutex_;
  std::map<std::string, FullTensor> tensors_;
  std::map<std::string, std::variant<std::int64_t, double>> numbers_;
};

TEST(State, HasEachElementOnceInEveryLayout) {
  const TempDir dir;
  for (const std::string type : {"AdamW", "Adafactor", "SGD"}) {
    std::map<std::string, std::size_t> plain;
    for (const Layout& layout : std::vector<Layout>{
             {1, 1, 1}, {2, 2, 2}, {3, 1, 2, 2}, {.data = 2, .tensor = 2, .replicas = 2}}) {
      for (const char* stage : {"0", "1", "2", "3"}) {
        SCOPED_TRACE(type + " " + name_of(layout) + " zero " + stage);
        const Config config = seeded_config(
            "gpt2", dir / "run",
            overrides_of(layout) +
                Overrides{"optimizer.type=" + type, std::string("zero_optimization.stage=") + stage,
                          "zero_optimization.stage3_param_persistence_threshold=50",
                          type == "SGD" ? "optimizer.params.momentum=0.9"
                                        : "optimizer.params.weight_decay=0"} +
                (type == "AdamW"
                     ? Overrides{}
                     : Overrides{"optimizer.params.betas=null", "optimizer.params.eps=null"}),
            axes_of(layout));
        Store store;
        on_ranks(config, transport_options(config), [&](Rank& own) { store.save(own.stepper, 0); });
        store.expect_each_element_once();
        if (plain.empty()) plain = store.sizes();
        EXPECT_EQ(store.sizes(), plain);  // names and shapes don't depend on the layout
      }
    }
    const std::string of = " of layers.0.mlp.up.weight";  // (ffn 192, h 48)
    for (const std::string name : {"weight", "master", "gradient"}) {
      EXPECT_EQ(plain.at(name + of), 192U * 48) << name;
    }
    if (type == "Adafactor") {
      EXPECT_EQ(plain.at("row_var" + of), 192U);
      EXPECT_EQ(plain.at("col_var" + of), 48U);
    }
  }
}

// Trains `steps` iterations as the trainer does.
void train_steps(Stepper& stepper, const TrainingInputs& inputs, std::int64_t steps) {
  const Config& config = stepper.model().config();
  BatchSampler sampler(inputs.datasets.train, batch_shape(config.batch, stepper.topology()));
  for (std::int64_t k = 0; k < steps; ++k) {
    std::vector<HostMicroBatch> batches(static_cast<std::size_t>(sampler.micro_batches(k)));
    for (std::size_t i = 0; i < batches.size(); ++i) {
      sampler.fill(k, static_cast<std::int64_t>(i), batches[i]);
    }
    stepper.advance(
        batches, {.learning_rate = learning_rate(config.scheduler, config.optimizer.params.lr, k),
                  .close = k + 1 == steps});
  }
}

struct Case {
  const char* name;
  Overrides overrides;
};

void expect_same(const IterationMetrics& a, const IterationMetrics& b) {
  EXPECT_EQ(a.iteration, b.iteration);
  EXPECT_EQ(a.loss, b.loss) << a.iteration;
  EXPECT_EQ(a.grad_norm, b.grad_norm) << a.iteration;
  EXPECT_EQ(a.learning_rate, b.learning_rate);
  EXPECT_EQ(a.loss_scale, b.loss_scale);
  EXPECT_EQ(a.consumed_tokens, b.consumed_tokens);
}

TEST(State, IsAllThatARunResumesFromInAnotherLayout) {
  const TempDir dir;
  const std::vector<Case> cases{
      {"fp32", {}},
      {"Adafactor",
       {"optimizer.type=Adafactor", "optimizer.params.betas=null", "optimizer.params.eps=null"}},
      // The first steps overflow, so the scale falls; it rises again after two clean steps.
      {"fp16",
       {"precision.dtype=fp16", "precision.initial_scale_power=24", "precision.loss_scale_window=2",
        "precision.hysteresis=2"}}};
  struct Move {
    Layout from, to;
    Overrides then;
  };
  const std::vector<Move> moves{
      {{2, 1, 1}, {2, 1, 1}, {}},
      {{2, 2, 1}, {2, 2, 2}, {"zero_optimization.stage=1", "pipeline.schedule=zb_h2"}},
      {{2, 1, 2, 2},
       {2, 1, 1},
       {"zero_optimization.stage=3", "zero_optimization.reduce_each_micro_batch=false"}}};
  constexpr std::int64_t kept = 3;
  for (const Case& c : cases) {
    for (const Move& move : moves) {
      SCOPED_TRACE(std::string(c.name) + " from " + name_of(move.from) + " to " + name_of(move.to));
      const auto config_of = [&](const Layout& layout, const Overrides& more) {
        return seeded_config(
            "gpt2", dir / "run",
            overrides_of(layout) + c.overrides + more +
                Overrides{"training.train_iters=6", "model.hidden_dropout=0.1",
                          "gradient_clipping=0.5", "scheduler.type=linear",
                          "training.on_non_finite=skip", "logging.overwrite=true",
                          "checkpoint.overwrite=true", "checkpoint.save=" + (dir / "weights")});
      };
      const auto weights = [&] { return read_file(dir / "weights" + "/model.safetensors"); };
      const TrainingSummary uninterrupted = train(config_of(move.from, {}));
      const std::string expected = weights();

      Store store;
      const Config first = config_of(move.from, {});
      const TrainingInputs inputs = prepare_training(first);
      on_ranks(first, transport_options(first), [&](Rank& own) {
        train_steps(own.stepper, inputs, kept);
        store.save(own.stepper, kept);
      });
      const TrainingInputs rest =
          resumed_from(prepare_training(config_of(move.to, move.then)), kept,
                       [&](Context& context, State& state) { store.restore(context, state); });
      const TrainingSummary summary = train_local(rest, {});
      ASSERT_EQ(summary.history.size(), 3u);
      for (std::size_t i = 0; i < 3; ++i) {
        expect_same(summary.history[i], uninterrupted.history[kept + i]);
      }
      EXPECT_TRUE(weights() == expected);
    }
  }
}

TEST(State, OfAnotherIterationIsRefused) {
  const TempDir dir;
  const Config config = seeded_config("gpt2", dir / "run", {"training.train_iters=6"});
  TrainingInputs inputs = prepare_training(config);
  EXPECT_THROW(resumed_from(inputs, 6, [](Context&, State&) {}), RequestError);
  inputs = resumed_from(inputs, 2, [](Context&, State&) {});
  EXPECT_THROW(train_local(inputs, {}), Error);
}

}  // namespace
}  // namespace trident::testing
