#include "support/training_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <span>

#include "engine/setup/from_config.h"
#include "formats/hugging_face/safetensors.h"
#include "support/covering.h"
#include "support/mesh.h"
#include "support/source_dir.h"
#include "support/temp_dir.h"

namespace trident::testing {

std::string name_of(const Layout& layout) {
  std::string name = "dp" + std::to_string(layout.data) + "_tp" + std::to_string(layout.tensor) +
                     "_pp" + std::to_string(layout.pipeline);
  if (layout.chunks > 1) name += "_v" + std::to_string(layout.chunks);
  return layout.replicas > 1 ? name + "_rp" + std::to_string(layout.replicas) : name;
}

std::vector<std::string> overrides_of(const Layout& layout) {
  return {"parallel.data_parallel_size=" + std::to_string(layout.data),
          "parallel.tensor_model_parallel_size=" + std::to_string(layout.tensor),
          "parallel.pipeline_model_parallel_size=" + std::to_string(layout.pipeline),
          "parallel.virtual_pipeline_model_parallel_size=" + std::to_string(layout.chunks)};
}

std::vector<MeshAxis> axes_of(const Layout& layout) {
  if (layout.replicas == 1) return {};
  return {replica_axis(layout.replicas)};
}

Overrides operator+(Overrides a, const Overrides& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

namespace {

Config small_config(const std::string& model, const std::string& directory,
                    const Overrides& overrides, const std::vector<MeshAxis>& more_axes,
                    const std::shared_ptr<const ConfigConstraints>& rules) {
  const std::string golden = source_dir() + "/tests/golden/" + model;
  const Overrides places{"data.train.0.path=" + golden + "/tokens",
                         "checkpoint.load=" + golden + "/model",
                         "logging.dir=" + directory,
                         "logging.tensorboard=false",
                         "logging.trace=false",
                         "runtime.timeout_seconds=120"};
  return load_config(golden + "/config.json", places + overrides,
                     {.constraints = rules, .more_axes = more_axes})
      .config;
}

}  // namespace

Config golden_config(const std::string& model, const std::string& directory,
                     const Overrides& overrides) {
  return small_config(model, directory, overrides, {}, built_in_constraints());
}

Config seeded_config(const std::string& model, const std::string& directory,
                     const Overrides& overrides, const std::vector<MeshAxis>& more_axes,
                     const std::shared_ptr<const ConfigConstraints>& rules) {
  return small_config(
      model, directory,
      Overrides{"checkpoint.load=null", "model.num_layers=4", "logging.dump_gradients_at=[]"} +
          overrides,
      more_axes, rules);
}

TrainingSummary train(const Config& config, On on, const TrainerHooks& hooks) {
  return train(prepare_training(config), on, hooks);
}

TrainingSummary train(const TrainingInputs& inputs, On on, const TrainerHooks& hooks) {
  const Config& config = inputs.config;
  TrainingSummary summary;
  const auto shared = make_device(on == On::guarded ? On::cpu : on);
  run_local(
      static_cast<int>(config.world_size()), transport_options(config), [&](Transport& transport) {
        const auto own = on == On::guarded ? make_guarded_device(std::size_t{1} << 28) : nullptr;
        auto mine = train_rank(inputs, transport, own ? *own : *shared, hooks);
        if (transport.world().rank() == 0) summary = std::move(mine);
      });
  return summary;
}

std::vector<double> losses_of(const TrainingSummary& summary) {
  std::vector<double> losses;
  for (const IterationMetrics& m : summary.history) losses.push_back(m.loss);
  return losses;
}

double largest_relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]) / std::abs(b[i]);
    // A NaN must not count as a small difference.
    largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                     : std::max(largest, difference);
  }
  return largest;
}

const Overrides stirred{"model.hidden_dropout=0.1", "model.attention_dropout=0.1",
                        "gradient_clipping=0.5", "runtime.threads_per_rank=1"};

namespace {

// The schedule is that of twenty steps. Tests run the first of them; full tests run all.
Overrides fewer_steps() {
  if (tests_are_full()) return {};
  return {usual_device() == On::cuda ? "training.train_iters=6" : "training.train_iters=12",
          "scheduler.decay_iters=20"};
}

}  // namespace

Outcome outcome(const std::string& model, const Layout& layout, const Overrides& overrides) {
  const TempDir dir;
  const Config config = seeded_config(model, dir.path(),
                                      stirred + Overrides{"checkpoint.save=" + (dir / "weights")} +
                                          overrides_of(layout) + fewer_steps() + overrides,
                                      axes_of(layout));
  const TrainingSummary summary = train(config);
  EXPECT_EQ(static_cast<std::int64_t>(summary.history.size()), config.training.train_iters);
  for (const IterationMetrics& m : summary.history) EXPECT_GT(m.grad_norm, 0.5) << m.iteration;
  const std::string weights = dir / "weights/model.safetensors";
  return {losses_of(summary), slurp(weights), read_tensors(weights)};
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_GT(a.weights.size(), 100'000U);
  EXPECT_TRUE(a.weights == b.weights) << "saved weights differ";
}

Rank::Rank(Context& context, const Config& config, const Architecture& architecture,
           const Schedule& schedule, const Topology& topology)
    : model(context, config, architecture, schedule, topology),
      stepper(model, schedule),
      evaluator(model, schedule) {
  model.initialise();
}

void on_ranks(const Config& config, const TransportOptions& options,
              const std::function<void(Rank&)>& body) {
  const auto architecture = architecture_of(config);
  std::vector<std::unique_ptr<Device>> devices;
  // NCCL needs one GPU for each rank.
  for (int i = 0; i < (options.library ? static_cast<int>(config.world_size()) : 1); ++i) {
    devices.push_back(options.library ? make_cuda_device(i) : make_device(usual_device()));
  }
  const Schedule schedule = schedule_of(config);
  run_local(static_cast<int>(config.world_size()), options, [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.world().rank());
    Context context(*devices[rank % devices.size()],
                    static_cast<int>(config.runtime.threads_per_rank),
                    kernel_options(config.training, config.precision, config.runtime));
    Rank own(context, config, *architecture, schedule,
             topology_of(config.parallel, schedule, transport));
    body(own);
  });
}

std::vector<HostMicroBatch> synthetic_batches(const RankModel& model, std::int64_t iteration) {
  const Config& config = model.config();
  const std::int64_t m = config.num_microbatches(), b = config.batch.micro_batch_size;
  const std::int64_t s = config.data.sequence_length;
  std::vector<HostMicroBatch> batches(static_cast<std::size_t>(m));
  std::int64_t sample =
      iteration * config.batch.global_batch_size + model.topology().place(Group::batch) * m * b;
  for (HostMicroBatch& batch : batches) {
    for (std::int64_t i = 0; i < b; ++i, ++sample) {
      std::mt19937 random(static_cast<std::uint32_t>(sample));
      const auto token = [&] {
        return static_cast<std::int32_t>(random() %
                                         static_cast<std::uint64_t>(config.model.vocab_size));
      };
      batch.sample_ids.push_back(sample);
      for (std::int64_t position = 0; position < s; ++position) {
        batch.tokens.push_back(token());
        batch.labels.push_back(token());
      }
    }
  }
  return batches;
}

std::map<std::string, HostTensor> read_tensors(const std::string& path) {
  const SafetensorsFile file(path);
  std::map<std::string, HostTensor> tensors;
  for (const SafetensorsEntry& entry : file.tensors()) {
    HostTensor& tensor = tensors[entry.name] = {entry.shape, {}};
    if (entry.dtype == DType::bf16) {
      std::vector<std::uint16_t> values(entry.bytes() / sizeof(std::uint16_t));
      file.read(entry, std::as_writable_bytes(std::span(values)));
      for (const std::uint16_t bits : values) {
        tensor.values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
      }
    } else {
      std::vector<float> values(entry.bytes() / sizeof(float));
      file.read(entry, std::as_writable_bytes(std::span(values)));
      tensor.values.assign(values.begin(), values.end());
    }
  }
  return tensors;
}

double largest_relative_distance(const std::map<std::string, HostTensor>& a,
                                 const std::map<std::string, HostTensor>& b) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return infinity;
  double largest = 0;
  for (const auto& [name, tensor] : b) {
    const auto other = a.find(name);
    if (other == a.end() || other->second.shape != tensor.shape) return infinity;
    double apart = 0, whole = 0;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      apart += std::pow(other->second.values[i] - tensor.values[i], 2);
      whole += std::pow(tensor.values[i], 2);
    }
    const double distance = std::sqrt(apart / whole);
    largest = std::isnan(distance) ? infinity : std::max(largest, distance);
  }
  return largest;
}

}  // namespace trident::testing
