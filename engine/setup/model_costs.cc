#include "engine/setup/model_costs.h"

#include <algorithm>
#include <functional>

#include "core/operation_trace.h"

namespace trident {
namespace {

// The samples of a micro-batch; 1 if the config's batch isn't known yet.
std::int64_t traced_samples(const BatchConfig& batch) {
  return std::max<std::int64_t>(1, batch.micro_batch_size);
}

// The config of the complete model on one rank, as the cost must not depend on the layout.
Config unsharded(const Config& config) {
  Config whole = config;
  whole.parallel = ParallelConfig::one_rank();
  whole.model.make_vocab_size_divisible_by = 1;
  whole.batch.micro_batch_size = traced_samples(config.batch);
  return whole;
}

// Runs one micro-batch through each module.
class Tracer {
 public:
  Tracer(const Config& config, const Architecture& architecture)
      : shape_(architecture.shape(config)),
        layers_(config.model.num_layers),
        chunk_(std::move(
            build_chunks(
                architecture, shape_, ParallelContext{},
                {architecture.layers_alike(shape_) ? std::min<std::int64_t>(1, layers_) : layers_},
                {0})
                .front())),
        recomputed_(config.activation_checkpointing.granularity == "full") {
    context_.set_trace(&trace_);
    const std::int64_t batch = config.batch.micro_batch_size,
                       sequence = config.data.sequence_length, tokens = batch * sequence;
    const auto numbers = [&](std::int64_t count, DType dtype) {
      return context_.empty({count}, dtype, Category::activation);
    };
    batch_ = {.batch = batch,
              .sequence = sequence,
              .samples = numbers(batch, DType::i64),
              .tokens = numbers(tokens, DType::i32),
              .labels = numbers(tokens, DType::i32)};
    activations_ = context_.empty({tokens, shape_.hidden}, shape_.dtype, Category::activation);
    for (const auto& module : chunk_.modules) {
      for (const auto& parameter : with_buffers(*module)) {
        const ParameterSpec& spec = parameter->spec();
        const Shape local = spec.placement.local();
        const auto tensor = [&](DType dtype) {
          return context_.empty(local, dtype, Category::parameter);
        };
        parameter->bind_weight(tensor(spec.dtype(shape_.dtype)));
        for (int use = 0; use < parameter->uses(); ++use) {
          parameter->bind_gradient(
              use, tensor(spec.role == ParameterRole::expert_bias ? DType::i64 : DType::f32));
        }
      }
    }
  }

  ModelCosts run() {
    ModelCosts costs;
    const std::size_t last = chunk_.modules.size() - 1;
    costs.embedding = cost_of(0, false);
    for (std::size_t i = 1; i < last; ++i) costs.layers.push_back(cost_of(i, recomputed_));
    if (!costs.layers.empty()) {
      costs.layers.resize(static_cast<std::size_t>(layers_), costs.layers.front());
    }
    costs.head = cost_of(last, false);
    return costs;
  }

 private:
  ModuleCost cost_of(std::size_t index, bool recomputed) {
    const Module& module = *chunk_.modules[index];
    const bool ends = index + 1 == chunk_.modules.size();
    SavedActivationsPtr saved;
    ModuleCost cost;
    module.forward(context_, batch_, index == 0 ? Tensor() : activations_, saved);
    cost.forward = taken(cost);
    module.backward_input(context_, batch_, ends ? Tensor() : activations_, saved);
    cost.backward_input = taken(cost) + (recomputed ? cost.forward : 0);
    module.backward_weight(context_, batch_, saved);
    cost.backward_weight = taken(cost);
    return cost;
  }

  double taken(ModuleCost& cost) {
    double flops = 0;
    for (const TracedOperation& operation : trace_.operations()) {
      flops += operation.flops;
      cost.model_flops += operation.model_flops;
    }
    trace_.clear();
    return flops;
  }

  std::unique_ptr<Device> device_ = make_planning_device();
  OperationTrace trace_;
  Context context_{*device_, 1};
  TransformerShape shape_;
  std::int64_t layers_;
  Chunk chunk_;
  bool recomputed_;
  MicroBatch batch_;
  Tensor activations_;
};

}  // namespace

ModuleCost& ModuleCost::operator+=(const ModuleCost& other) {
  forward += other.forward;
  backward_input += other.backward_input;
  backward_weight += other.backward_weight;
  model_flops += other.model_flops;
  return *this;
}

ModuleCost ModelCosts::mean_layer() const {
  ModuleCost sum;
  for (const ModuleCost& layer : layers) sum += layer;
  const auto count = static_cast<double>(std::max<std::size_t>(1, layers.size()));
  return {sum.forward / count, sum.backward_input / count, sum.backward_weight / count,
          sum.model_flops / count};
}

std::vector<double> ModelCosts::different_layers() const {
  std::vector<double> totals;
  for (const ModuleCost& layer : layers) totals.push_back(layer.total());
  const bool equal =
      std::adjacent_find(totals.begin(), totals.end(), std::not_equal_to<>()) == totals.end();
  return equal ? std::vector<double>() : totals;
}

double ModelCosts::model_flops() const {
  double flops = embedding.model_flops + head.model_flops;
  for (const ModuleCost& layer : layers) flops += layer.model_flops;
  return flops;
}

ModelCosts model_costs(const Config& config, const Architecture& architecture) {
  return Tracer(unsharded(config), architecture).run();
}

StageTimes stage_costs(const ModelCosts& costs, const std::vector<std::int64_t>& split) {
  StageTimes times;
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < split.size(); ++stage) {
    ModuleCost cost;
    for (std::int64_t i = 0; i < split[stage]; ++i) cost += costs.layers.at(layer++);
    if (stage == 0) cost += costs.embedding;
    if (stage + 1 == split.size()) cost += costs.head;
    times.forward.push_back(cost.forward);
    times.backward_input.push_back(cost.backward_input);
    times.backward_weight.push_back(cost.backward_weight);
  }
  return times;
}

double flops_per_step(const Config& config, const Architecture& architecture) {
  Config plain = config;
  plain.activation_checkpointing = {};
  return flops_per_step(plain, architecture, model_costs(plain, architecture));
}

double flops_per_step(const Config& config, const Architecture& architecture,
                      const ModelCosts& known) {
  // Recomputation doesn't count. With "selective" it is part of a layer's trace, so the costs are
  // traced again without it.
  if (config.activation_checkpointing.granularity == "selective") {
    return flops_per_step(config, architecture);
  }
  const auto samples = static_cast<double>(config.batch.global_batch_size);
  return samples / static_cast<double>(traced_samples(config.batch)) * known.model_flops();
}

}  // namespace trident
