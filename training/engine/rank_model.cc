#include "training/engine/rank_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/error.h"
#include "scheduler/lower.h"
#include "training/engine/gradient_norm.h"
#include "training/setup/from_config.h"

namespace trident {

RankModel::RankModel(Context& context, const Config& config, const Architecture& architecture,
                     const Schedule& schedule, const Topology& topology, Purpose purpose)
    : RankModel(context, config, architecture,
                std::make_shared<RunLists>(schedule,
                                           std::max<std::int64_t>(1, config.training.train_iters)),
                topology, purpose) {}

RankModel::RankModel(Context& context, const Config& config, const Architecture& architecture,
                     std::shared_ptr<const RunLists> lists, const Topology& topology,
                     Purpose purpose)
    : context_(context),
      config_(config),
      architecture_(architecture),
      topology_(topology),
      shape_(architecture.shape(config)),
      lists_(std::move(lists)),
      schedule_(lists_->schedule),
      executed_(&lists_->iterations.of(0)),
      loss_scale_(config.precision),
      check_(topology.world.duplicate("check"), topology.size(Group::loss)),
      unclipped_(config.gradient_clipping == 0) {
  std::vector<ProcessGroup> groups{check_.group(), topology.embedding};
  for (const auto& [group, members] : topology.groups) {
    if (group != Group::pipeline) groups.push_back(members);  // its messages have their links
  }
  topology.world.connect(context, groups);
  const auto stage_rank = static_cast<std::size_t>(topology.place(Group::pipeline));
  forward_list_ = lower_rank(lists_->forward, topology.place(Group::pipeline));

  const TensorParallel tensor = tensor_parallel_of(config, topology);
  chunks_ = build_chunks(architecture, shape_, tensor, config.pipeline.layer_split,
                         schedule_.placement[stage_rank]);
  const ZeroConfig& zero = config.zero_optimization;
  buckets_ =
      std::make_unique<ParameterBuckets>(context, backward_groups(chunks_),
                                         BucketOptions{.dtype = shape_.dtype,
                                                       .zero_stage = static_cast<int>(zero.stage),
                                                       .limits = bucket_limits(config),
                                                       .master = purpose == Purpose::training},
                                         topology);
  weights_ = std::make_unique<WeightGathering>(*buckets_, zero.overlap_comm,
                                               zero.stage3_prefetch_bucket_size);
  if (purpose == Purpose::training) {
    const bool each = reduces_each_micro_batch(config);
    gradients_ = std::make_unique<GradientReduction>(
        context, *buckets_, topology,
        GradientOptions{.dtype = dtype_of(config.precision.grad_accum_dtype),
                        .overlap = zero.overlap_comm,
                        .each_round = each,
                        .long_rounds = !each && config.num_microbatches() > 1});
    optimizer_ =
        std::make_unique<Optimizer>(context, *buckets_, make_update_rule(config), topology);
    if (post_validation()) {
      State changed;
      buckets_->list(StateKind::master, topology_, changed);
      optimizer_->list(*buckets_, topology_, changed);
      roll_back_ = std::make_unique<RollBack>(context, std::move(changed));
    }
  }

  std::int64_t rows = config.batch.micro_batch_size * config.data.sequence_length;
  if (tensor.sequence_parallel) rows /= tensor.size;
  const auto make_runner = [&](int first_channel) {
    return std::make_unique<ModelStageRunner>(
        context, chunks_, topology.of(Group::pipeline), schedule_.placement, *weights_,
        ModelStageRunner::Shape{.rows = rows,
                                .hidden = shape_.hidden,
                                .dtype = shape_.dtype,
                                .recompute_layers = recompute_layers(config)},
        first_channel);
  };
  runner_ = make_runner(0);
  evaluator_ = make_runner(2);  // training may have micro-batches in flight meanwhile
  if (!schedule_.asynchronous() || purpose != Purpose::training) return;
  const bool each = updates_each_microbatch();
  unchecked_ = each || (config.gradient_clipping == 0 && config.training.on_non_finite == "stop" &&
                        shape_.dtype != DType::f16);
  stash_ = std::make_unique<WeightStash>(*buckets_, each ? 0 : schedule_.microbatches);
  runner_->use(stash_.get(), each, [this] {
    gradients_->finish(context_);
    update(1.0);
    weights_->gather_updated(context_);
    gradients_->begin();
  });
}

void RankModel::update(double clipping) {
  if (stash_) stash_->before_update(context_);
  optimizer_->step(context_, *buckets_, static_cast<float>(learning_rate_),
                   static_cast<float>(clipping / gradient_scale_));
}

State RankModel::state() {
  State state;
  for (const StateKind kind : {StateKind::weight, StateKind::master, StateKind::gradient}) {
    buckets_->list(kind, topology_, state);
  }
  if (optimizer_) optimizer_->list(*buckets_, topology_, state);
  loss_scale_.list(state);
  return state;
}

void RankModel::restored() {
  buckets_->round_masters(context_);
  weights_->gather_updated(context_);
}

int RankModel::look_ahead() const {
  return lists_->iterations.of(iteration_).schedule.microbatches - schedule_.microbatches;
}

std::int64_t RankModel::weight_version() const {
  return stash_ ? stash_->live() : optimizer_ ? optimizer_->steps() : 0;
}

void RankModel::initialise() {
  for (const Bucket& bucket : buckets_->buckets()) {
    for (const BucketEntry& entry : bucket.layout.entries) {
      // In pieces, so that no whole fp32 copy of a table is needed.
      const ParameterSpec& spec = entry.parameter->spec();
      const Shape local = spec.placement.local();
      const std::int64_t rows = local.dim(0),
                         columns = local.numel() / std::max<std::int64_t>(1, rows);
      const std::int64_t step =
          std::max<std::int64_t>(1, 250'000 / std::max<std::int64_t>(1, columns));
      for (std::int64_t row = 0; row < rows; row += step) {
        const std::int64_t count = std::min(step, rows - row);
        const Tensor values =
            context_.empty(local.rank() == 1 ? Shape{count} : Shape{count, columns}, DType::f32,
                           Category::workspace);
        trident::initialise(context_, spec, shape_.seed, values, row);
        buckets_->set(context_, *entry.parameter, values, row * columns);
      }
    }
  }
}

std::vector<MicroBatch> RankModel::upload(const std::vector<HostMicroBatch>& batches,
                                          bool training) {
  bool first = false, last = false;
  for (const Chunk& chunk : chunks_) {
    first = first || chunk.stage == 0;
    last = last || chunk.stage + 1 == schedule_.total_stages();
  }
  std::vector<MicroBatch> result;
  for (const HostMicroBatch& host : batches) {
    // A plan has no tokens, but for their number.
    const std::int64_t samples = context_.plans()
                                     ? config_.batch.micro_batch_size
                                     : static_cast<std::int64_t>(host.sample_ids.size());
    const std::int64_t tokens = context_.plans() ? samples * config_.data.sequence_length
                                                 : static_cast<std::int64_t>(host.tokens.size());
    const auto uploaded = [&]<class T>(std::int64_t count, const std::vector<T>& values) {
      if (context_.plans()) return context_.empty({count}, DTypeOf<T>::value, Category::activation);
      return context_.from_host<T>({count}, values, Category::activation);
    };
    MicroBatch batch{.batch = samples,
                     .sequence = tokens / samples,
                     .training = training,
                     .version = stash_ ? stash_->live() : 0};
    batch.samples = uploaded(samples, host.sample_ids);
    if (first) batch.tokens = uploaded(tokens, host.tokens);
    if (last) batch.labels = uploaded(tokens, host.labels);
    result.push_back(std::move(batch));
  }
  return result;
}

double RankModel::batch_tokens() const {
  return static_cast<double>(config_.batch.global_batch_size) *
         static_cast<double>(config_.data.sequence_length);
}

double RankModel::own_loss(const Tensor& losses) {
  double local = 0;
  for (const double loss : context_.to_host<double>(losses)) local += loss;
  return local;
}

double RankModel::clipping(const StepResult& result) const {
  const double limit = config_.gradient_clipping;
  return limit > 0 && result.grad_norm > limit ? limit / (result.grad_norm + 1e-6) : 1.0;
}

void RankModel::update(const StepResult& result) {
  if (result.applied) {
    update(clipping(result));
  } else if (stash_) {
    stash_->before_update(context_);  // 2BW counts a batch that is left out, too
  }
}

bool RankModel::settle(StepResult& result) {
  result = check_.end(context_);
  result.grad_norm /= gradient_scale_;
  result.loss_scale = gradient_scale_;
  // A smaller scale doesn't help where the loss itself, which has none, is not finite.
  result.rescales = !result.applied && std::isfinite(result.loss) && loss_scale_.excuses_overflow();
  loss_scale_.update(!result.applied);
  const bool right = result.applied && clipping(result) == 1.0;
  unclipped_ = right;
  if (!optimistic_ || right) return false;
  ++rolled_back_;
  result.rolled_back = true;
  roll_back_->restore(context_);
  buckets_->round_masters(context_);
  update(result);
  weights_->gather_updated(context_);
  return true;
}

std::optional<StepResult> RankModel::settle() {
  if (!check_.open()) return std::nullopt;
  StepResult result;
  settle(result);
  context_.synchronize();
  return result;
}

StepResult RankModel::train(const std::vector<HostMicroBatch>& batches, double learning_rate) {
  return *advance(batches, {.learning_rate = learning_rate}).own;
}

void RankModel::begin_iteration(const std::vector<HostMicroBatch>& batches) {
  if (!optimizer_) throw Error("RankModel::train: this model was made for inference");
  executed_ = &lists_->iterations.of(iteration_);
  if (std::ssize(batches) < executed_->schedule.microbatches) {
    throw Error(
        fmt::format("RankModel::train: got {} micro-batches, {} of this and {} of later "
                    "iterations are needed",
                    batches.size(), schedule_.microbatches, look_ahead()));
  }
  context_.mark(clock_.begin);
  runner_->begin(upload(batches, true), gradients_.get(),
                 static_cast<std::size_t>(schedule_.microbatches),
                 reduces_each_micro_batch(config_));
}

std::size_t RankModel::run_warm_up(const std::vector<LoweredAction>& list, Advance& result) {
  const auto place = static_cast<std::size_t>(topology_.place(Group::pipeline));
  const std::size_t length = lists_->warm_up.length[place];
  execute(list, 0, length, *runner_, trace_);
  const bool again = settle(result.before.emplace());
  result.ran = !result.before->stop && (result.before->applied || result.before->rescales ||
                                        config_.training.on_non_finite != "stop");
  if (result.ran && !again) return length;
  context_.synchronize();
  runner_->discard(lists_->warm_up.unmatched[place]);
  weights_->forget(context_);  // what a warm-up's end has asked for may be of before
  return 0;
}

void RankModel::finish_step(const Tensor& losses, const StepRequest& request, Advance& result) {
  const NamedRange range(context_.device(), [] { return std::string("optimizer"); });
  const bool close =
      request.close || keeps_gradients_ || !(unchecked_ || (post_validation() && unclipped_));
  const bool speaks =
      topology_.place(Group::pipeline) == last_stage_rank() && topology_.place(Group::tensor) == 0;
  // Before the loss, for which the host waits.
  const Tensor squares = gradient_squares(context_, *buckets_, topology_);
  const double loss = speaks ? own_loss(losses) : 0;
  check_.begin(context_, squares, speaks ? &loss : nullptr, topology_.place(Group::loss),
               request.stop != nullptr && request.stop->load(), batch_tokens(),
               close ? Async::no : Async::yes);
  optimistic_ = !close && !unchecked_;
  if (close) settle(result.own.emplace());
  context_.mark(clock_.checked);
  if (optimistic_) roll_back_->keep(context_);
  const bool updates = !updates_each_microbatch();         // else it has
  if (updates) update(result.own.value_or(StepResult{}));  // open: optimistic, or not to be changed
  context_.mark(clock_.updated);
  if (updates && (!result.own || result.own->applied)) weights_->gather_updated(context_);
  context_.mark(clock_.end);
}

Advance RankModel::advance(const std::vector<HostMicroBatch>& batches, const StepRequest& request) {
  begin_iteration(batches);
  const auto& list = executed_->lists[static_cast<std::size_t>(topology_.place(Group::pipeline))];
  const std::int64_t iterations = lists_->iterations.count();
  const bool goes_on = schedule_.asynchronous() && iteration_ + 1 < iterations;
  Advance result;
  std::size_t done = 0;
  if (check_.open() && optimistic_) done = run_warm_up(list, result);
  if (!result.ran) {
    runner_->finish();
    context_.synchronize();
    return result;
  }
  learning_rate_ = request.learning_rate;
  // PipeDream's update has the mean over the tokens of one micro-batch of all data ranks.
  const double mean_over =
      updates_each_microbatch() ? batch_tokens() / schedule_.microbatches : batch_tokens();
  gradient_scale_ = loss_scale_.value();
  runner_->scale_losses(static_cast<float>(gradient_scale_ / mean_over));
  gradients_->begin();
  execute(list, done, list.size(), *runner_, trace_);
  const Tensor losses = runner_->finish(goes_on);
  iteration_ = (iteration_ + 1) % iterations;
  context_.mark(clock_.executed);
  if (!updates_each_microbatch()) gradients_->finish(context_);
  context_.mark(clock_.reduced);
  if (check_.open()) settle(result.before.emplace());
  finish_step(losses, request, result);
  context_.synchronize();
  return result;
}

std::optional<double> RankModel::evaluate(const std::vector<HostMicroBatch>& batches,
                                          const std::atomic<bool>* stop) {
  if (check_.open() && optimistic_) {
    throw Error("RankModel::evaluate: the last update is not settled; call settle() before");
  }
  evaluator_->begin(upload(batches, false), nullptr);
  ExecutionTrace trace;
  std::size_t done = 0;
  for (int end = lists_->window; done < forward_list_.size(); end += lists_->window) {
    // A rank without backwards would run ahead of the next ones, and keep what it sends.
    evaluator_->deliver();
    const auto next = std::find_if(
        forward_list_.begin() + static_cast<std::ptrdiff_t>(done), forward_list_.end(),
        [&](const LoweredAction& a) { return a.step == Step::compute && a.microbatch >= end; });
    const auto until = static_cast<std::size_t>(next - forward_list_.begin());
    execute(forward_list_, done, until, *evaluator_, trace);
    done = until;
  }
  const Tensor losses = evaluator_->finish();
  const double local[]{losses ? own_loss(losses) : 0, stop != nullptr && stop->load() ? 1.0 : 0.0};
  // One row of the last stage carries the values; gathering to every rank in world order keeps the
  // order of additions fixed.
  const Tensor mine = context_.from_host<double>({2}, local, Category::workspace);
  const Tensor all = context_.empty({2 * topology_.world.size()}, DType::f64, Category::workspace);
  topology_.world.all_gather(context_, mine, all);
  const std::vector<double> sums = context_.to_host<double>(all);
  for (std::size_t at = 1; at < sums.size(); at += 2) {
    if (sums[at] != 0) return std::nullopt;
  }
  double total = 0;
  const Mesh& mesh = topology_.mesh;
  for (const int rank :
       mesh.group(mesh.moved(0, Group::pipeline, last_stage_rank()), Group::loss)) {
    total += sums[2 * static_cast<std::size_t>(rank)];
  }
  return total / batch_tokens();
}

}  // namespace trident
