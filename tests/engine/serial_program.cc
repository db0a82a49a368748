#include "tests/engine/serial_program.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "engine/gradient_norm.h"
#include "engine/setup/from_config.h"
#include "engine/step_check.h"
#include "kernels/elementwise.h"
#include "support/training_run.h"

namespace trident::testing {

std::vector<float> host(Context& context, const Tensor& tensor) {
  return context.to_host<float>(tensor.flat(0, tensor.numel()));
}

namespace {

// One rank of the program.
class Serial {
 public:
  // `split`: the number of layers in each stage of the pipeline that is compared.
  Serial(const Config& config, RankModel& model, const std::vector<std::int64_t>& split,
         bool each_microbatch)
      : config_(config),
        model_(model),
        context_(model.context()),
        topology_(model.topology()),
        stages_(std::ssize(split)),
        each_microbatch_(each_microbatch),
        m_(config.num_microbatches()),
        tokens_(static_cast<double>(config.batch.global_batch_size) *
                static_cast<double>(config.data.sequence_length)),
        parallel_(parallel_context_of(config.parallel, config.activation_checkpointing, topology_)),
        chunks_(build_chunks(model.architecture(), model.shape(), parallel_, split, all(split))),
        buckets_(context_, backward_groups(chunks_),
                 {.limits = bucket_limits(config.zero_optimization, config.parallel)}, topology_),
        gradients_(context_, buckets_, topology_, {}),
        optimizer_(context_, buckets_, make_update_rule(config), topology_,
                   config.optimizer.param_groups),
        check_(topology_.world, topology_.of(Group::shard).size(), model.statistics()),
        losses_(context_.empty({iterations * m_}, DType::f64, Category::workspace)) {
    initialise_versions();
  }

  // Fills in the norms and weights.
  void train(Trajectory& outcome);
  // Adds in a Stepper's order: over tokens and micro-batches, then over data ranks.
  void sum_losses(Trajectory& outcome);

 private:
  static std::vector<int> all(const std::vector<std::int64_t>& split) {
    std::vector<int> stages(split.size());
    std::iota(stages.begin(), stages.end(), 0);
    return stages;
  }
  void initialise_versions();
  // Sets each parameter to the weights of the version that `version_of` returns for it.
  template <class VersionOf>
  void set(VersionOf version_of);
  MicroBatch micro_batch(const HostMicroBatch& data);
  // Runs forward and backward of micro-batch n. `complete`: it is the last one before an update.
  void run(std::int64_t n, bool complete);
  double update();

  const Config& config_;
  RankModel& model_;
  Context& context_;
  const Topology& topology_;
  std::int64_t stages_;
  bool each_microbatch_;
  std::int64_t m_;
  double tokens_;
  ParallelContext parallel_;
  std::vector<Chunk> chunks_;
  ParameterBuckets buckets_;
  GradientReduction gradients_;
  Optimizer optimizer_;
  StepCheck check_;
  Tensor losses_;
  // All versions so far, by parameter.
  std::map<const Parameter*, std::vector<std::vector<float>>> versions_;
  std::map<const Parameter*, int> stage_of_;
};

void Serial::initialise_versions() {
  for (const Chunk& chunk : chunks_) {
    for (const auto& module : chunk.modules) {
      for (const auto& parameter : module->parameters()) {
        if (versions_.contains(parameter.get())) continue;
        stage_of_[parameter.get()] = chunk.stage;
        const Tensor values =
            context_.empty(parameter->spec().placement.local(), DType::f32, Category::workspace);
        initialise(context_, parameter->spec(), model_.shape().seed, values);
        versions_[parameter.get()].push_back(host(context_, values));
      }
    }
  }
}

template <class VersionOf>
void Serial::set(VersionOf version_of) {
  for (const auto& [parameter, history] : versions_) {
    const auto& values = history[static_cast<std::size_t>(version_of(parameter))];
    buckets_.set(context_, *parameter,
                 context_
                     .from_host<float>({static_cast<std::int64_t>(values.size())}, values,
                                       Category::workspace)
                     .view(parameter->spec().placement.local()));
  }
}

MicroBatch Serial::micro_batch(const HostMicroBatch& data) {
  const auto samples = static_cast<std::int64_t>(data.sample_ids.size());
  const auto length = static_cast<std::int64_t>(data.tokens.size());
  const double mean_over = each_microbatch_ ? tokens_ / static_cast<double>(m_) : tokens_;
  MicroBatch batch{.batch = samples,
                   .sequence = length / samples,
                   .loss_scale = static_cast<float>(1.0 / mean_over),
                   .auxiliary_scale = static_cast<float>(1.0 / mean_over)};
  batch.samples =
      context_.from_host<std::int64_t>({samples}, data.sample_ids, Category::activation);
  batch.tokens = context_.from_host<std::int32_t>({length}, data.tokens, Category::activation);
  batch.labels = context_.from_host<std::int32_t>({length}, data.labels, Category::activation);
  return batch;
}

void Serial::run(std::int64_t n, bool complete) {
  const MicroBatch batch =
      micro_batch(synthetic_batches(model_, n / m_)[static_cast<std::size_t>(n % m_)]);
  Tensor x;
  std::vector<std::pair<const Module*, SavedActivationsPtr>> ran;
  for (const Chunk& chunk : chunks_) {
    for (const auto& module : chunk.modules) {
      ran.emplace_back(module.get(), nullptr);
      x = module->forward(context_, batch, x, ran.back().second);
    }
  }
  sum(context_, x, losses_.flat(n, 1));
  x = Tensor();
  std::map<const Parameter*, int> uses_done;
  for (auto at = ran.rbegin(); at != ran.rend(); ++at) {
    x = at->first->backward_input(context_, batch, x, at->second);
    at->first->backward_weight(context_, batch, at->second);
    if (!complete) continue;
    for (const auto& parameter : at->first->parameters()) {
      // Backward reaches a tied weight's last use first.
      gradients_.ready(context_, *parameter, parameter->uses() - ++uses_done[parameter.get()]);
    }
  }
}

// Returns the gradient's norm.
double Serial::update() {
  gradients_.finish(context_);
  check_.begin(context_, gradient_squares(context_, buckets_, topology_), {}, nullptr, 0, {}, {},
               Async::no);
  const double norm = check_.end(context_).grad_norm;
  const double limit = config_.gradient_clipping;
  set([&](const Parameter* p) { return std::ssize(versions_.at(p)) - 1; });
  optimizer_.step(context_, buckets_, static_cast<float>(rate),
                  static_cast<float>(limit > 0 && norm > limit ? limit / (norm + 1e-6) : 1.0));
  for (auto& [parameter, history] : versions_) {
    history.push_back(host(context_, parameter->weight()));
  }
  return norm;
}

void Serial::train(Trajectory& outcome) {
  const bool first = topology_.world.rank() == 0;
  for (std::int64_t n = 0; n < iterations * m_; ++n) {
    // The delay rule: PipeDream's stage s is p-1-s updates behind; all stages of 2BW are one batch
    // behind.
    set([&](const Parameter* p) -> std::int64_t {
      return std::max<std::int64_t>(
          0, each_microbatch_ ? n - (stages_ - 1 - stage_of_.at(p)) : n / m_ - 1);
    });
    if (each_microbatch_ || n % m_ == 0) gradients_.begin();
    const bool complete = each_microbatch_ || n % m_ == m_ - 1;
    run(n, complete);
    if (!complete) continue;
    const double norm = update();
    if (n % m_ == m_ - 1 && first) outcome.norms.push_back(norm);
  }
  if (!first) return;
  for (const auto& [parameter, history] : versions_) {
    outcome.weights[parameter->name()] = history.back();
  }
}

void Serial::sum_losses(Trajectory& outcome) {
  const ProcessGroup& world = topology_.world;
  const std::vector<double> sums = context_.to_host<double>(losses_);
  for (int k = 0; k < iterations; ++k) {
    double local = 0;
    for (std::int64_t i = 0; i < m_; ++i) local += sums[static_cast<std::size_t>(k * m_ + i)];
    const Tensor mine =
        context_.from_host<double>({1}, std::span<const double>(&local, 1), Category::workspace);
    const Tensor all_ranks = context_.empty({world.size()}, DType::f64, Category::workspace);
    world.all_gather(context_, mine, all_ranks);
    double total = 0;
    for (const double part : context_.to_host<double>(all_ranks)) total += part;
    if (world.rank() == 0) outcome.losses.push_back(total / tokens_);
  }
}

}  // namespace

Trajectory serial(const Config& config, const std::vector<std::int64_t>& split,
                  bool each_microbatch) {
  Trajectory outcome;
  on_ranks(config, transport_options(config), [&](Rank& own) {
    Serial program(config, own.model, split, each_microbatch);
    program.train(outcome);
    program.sum_losses(outcome);
  });
  return outcome;
}

}  // namespace trident::testing
