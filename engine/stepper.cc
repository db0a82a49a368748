#include "engine/stepper.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/error.h"
#include "engine/gradient_norm.h"
#include "engine/setup/from_config.h"
#include "scheduler/sent_messages.h"

namespace trident {

Stepper::Stepper(RankModel& model, const Schedule& schedule)
    : Stepper(model,
              std::make_shared<RunLists>(
                  schedule, std::max<std::int64_t>(1, model.config().training.train_iters))) {}

Stepper::Stepper(RankModel& model, std::shared_ptr<const RunLists> lists)
    : model_(model),
      context_(model.context()),
      config_(model.config()),
      topology_(model.topology()),
      buckets_(model.buckets()),
      lists_(std::move(lists)),
      executed_(&lists_->iterations.of(0)),
      loss_scale_(config_.precision),
      check_(topology_.world.duplicate("check"), topology_.size(Group::loss), model.statistics()),
      unclipped_(config_.gradient_clipping == 0) {
  topology_.world.connect(context_, std::span(&check_.group(), 1));
  buckets_.keep_masters(context_);
  const bool each = reduces_each_micro_batch(config_);
  gradients_ = std::make_unique<GradientReduction>(
      context_, buckets_, topology_,
      GradientOptions{.dtype = dtype_of(config_.precision.grad_accum_dtype),
                      .overlap = config_.zero_optimization.overlap_comm,
                      .each_round = each,
                      .long_rounds = !each && config_.num_microbatches() > 1});
  optimizer_ = std::make_unique<Optimizer>(context_, buckets_, make_update_rule(config_), topology_,
                                           config_.optimizer.param_groups);
  expert_biases_ = std::make_unique<ExpertBiases>(context_, buckets_.buffers(), topology_,
                                                  model_.shape().experts.bias_rate);
  if (!lists_->warm_up.length.empty()) keep_for_roll_back();
  runner_ = model.make_runner(0);
  if (schedule().asynchronous()) become_asynchronous();
}

void Stepper::keep_for_roll_back() {
  State changed;
  buckets_.append_state(StateKind::master, topology_, changed);
  optimizer_->append_state(buckets_, topology_, changed);
  roll_back_ = std::make_unique<RollBack>(context_, std::move(changed));
}

void Stepper::become_asynchronous() {
  const bool each = updates_each_microbatch();
  unchecked_ =
      each || (config_.gradient_clipping == 0 && config_.training.on_non_finite == "stop" &&
               model_.shape().dtype != DType::f16);
  WeightStash& stash = model_.keep_versions(each ? 0 : schedule().microbatches);
  in_flight_ = &lists_->iterations.in_flight(topology_.place(Group::pipeline));
  const std::int64_t next = lists_->begun.iterations * schedule().microbatches;
  stash.resume_after(context_, lists_->begun.updates, next, in_flight_->backwards_since);
  runner_->resume_after(next);
  runner_->use_stash(&stash, each, [this] {
    finish_gradients();
    update(1.0);
    model_.gathering().gather_updated(context_);
    begin_gradients();
  });
}

void Stepper::update(double clipping) {
  if (before_update_) before_update_();
  if (model_.stash() != nullptr) model_.stash()->before_update(context_);
  optimizer_->step(context_, buckets_, static_cast<float>(learning_rate_),
                   static_cast<float>(clipping / gradient_scale_));
  expert_biases_->update(context_);
}

void Stepper::begin_gradients() {
  gradients_->begin();
  expert_biases_->begin();
}

void Stepper::finish_gradients() {
  gradients_->finish(context_);
  expert_biases_->reduce(context_);
}

State Stepper::state() {
  State state;
  for (const StateKind kind : {StateKind::weight, StateKind::master, StateKind::gradient}) {
    buckets_.append_state(kind, topology_, state);
  }
  optimizer_->append_state(buckets_, topology_, state);
  if (model_.stash() != nullptr) model_.stash()->append_state(topology_, state);
  loss_scale_.append_state(state);
  return state;
}

void Stepper::restored() {
  loss_scale_.restored();
  buckets_.round_masters(context_);
  model_.gathering().gather_updated(context_);
}

int Stepper::look_ahead(std::int64_t later) const {
  const std::int64_t at = (iteration_ + later) % lists_->iterations.count();
  return lists_->iterations.of(at).schedule.microbatches - schedule().microbatches;
}

void Stepper::set_lists(std::shared_ptr<const RunLists> lists) {
  if (check_.open() || schedule().asynchronous() || lists->schedule.asynchronous() ||
      lists->schedule.placement != schedule().placement) {
    throw Error(
        "Stepper::set_lists: an iteration is open, a schedule is asynchronous, or the lists have "
        "other stages");
  }
  lists_ = std::move(lists);
  iteration_ = 0;
  executed_ = &lists_->iterations.of(0);
}

BatchTokens Stepper::tokens_of(const std::vector<HostMicroBatch>& batches) const {
  const auto of_one =
      static_cast<double>(config_.batch.micro_batch_size * config_.parallel.ranks(Group::batch)) *
      static_cast<double>(config_.data.sequence_length);
  BatchTokens tokens{of_one * schedule().microbatches, 0};
  for (std::int64_t i = 0; i < schedule().microbatches; ++i) {
    const std::int64_t counted = batches[static_cast<std::size_t>(i)].counted;
    tokens.counted += counted < 0 ? of_one : static_cast<double>(counted);
  }
  return tokens;
}

bool Stepper::has_average() const {
  return config_.training.ema_decay > 0 && optimizer_->steps() > 0;
}

void Stepper::take_average() {
  optimizer_->take_average(context_, buckets_);
  buckets_.round_masters(context_);
  model_.gathering().gather_updated(context_);
}

std::int64_t Stepper::weight_version() const {
  return model_.stash() != nullptr ? model_.stash()->live() : optimizer_->steps();
}

double Stepper::clipping(const StepResult& result) const {
  const double limit = config_.gradient_clipping;
  return limit > 0 && result.grad_norm > limit ? limit / (result.grad_norm + 1e-6) : 1.0;
}

void Stepper::update(const StepResult& result) {
  if (result.applied) {
    update(clipping(result));
  } else if (model_.stash() != nullptr) {
    if (before_update_) before_update_();
    model_.stash()->before_update(context_);  // 2BW counts a skipped batch, too
  }
}

bool Stepper::wait_for_result(StepResult& result) {
  result = check_.end(context_);
  result.grad_norm /= gradient_scale_;
  result.loss_scale = gradient_scale_;
  // The loss has no scale, so a smaller scale doesn't help where the loss itself is not finite.
  result.only_overflowed =
      !result.applied && std::isfinite(result.loss) && loss_scale_.excuses_overflow();
  if (!result.empty) loss_scale_.update(!result.applied);
  const bool right = result.applied && clipping(result) == 1.0;
  unclipped_ = right;
  const bool wrong = model_.provisional() && !right;
  model_.set_provisional(false);
  if (!wrong) return false;
  ++rolled_back_;
  result.rolled_back = true;
  roll_back_->restore(context_);
  buckets_.round_masters(context_);
  update(result);
  model_.gathering().gather_updated(context_);
  return true;
}

std::optional<StepResult> Stepper::wait_for_result() {
  if (!check_.open()) return std::nullopt;
  StepResult result;
  wait_for_result(result);
  context_.synchronize();
  return result;
}

StepResult Stepper::train(const std::vector<HostMicroBatch>& batches, double learning_rate) {
  return *advance(batches, {.learning_rate = learning_rate}).current;
}

void Stepper::begin_iteration(const std::vector<HostMicroBatch>& batches) {
  executed_ = &lists_->iterations.of(iteration_);
  if (std::ssize(batches) < executed_->schedule.microbatches) {
    throw Error(
        fmt::format("Stepper::train: got {} micro-batches, {} of this and {} of later "
                    "iterations are needed",
                    batches.size(), schedule().microbatches, look_ahead()));
  }
  context_.mark(clock_.begin);
  runner_->begin(model_.upload(batches, true), gradients_.get(),
                 static_cast<std::size_t>(schedule().microbatches),
                 reduces_each_micro_batch(config_));
}

void Stepper::keep_sent(const SentMessages& sent) {
  runner_->keep_sent(sent.first_send_after_receipt(topology_.place(Group::pipeline)));
}

std::size_t Stepper::run_warm_up(const std::vector<LoweredAction>& list, Advance& result) {
  const auto place = static_cast<std::size_t>(topology_.place(Group::pipeline));
  const std::size_t length = lists_->warm_up.length[place];
  execute(list, 0, length, *runner_, trace_);
  const bool again = wait_for_result(result.previous.emplace());
  result.ran = !result.previous->stop &&
               (result.previous->applied || result.previous->only_overflowed ||
                result.previous->empty || config_.training.on_non_finite != "stop");
  if (result.ran && !again) return length;
  context_.synchronize();
  runner_->discard(lists_->warm_up.unmatched[place]);
  model_.gathering().forget(context_);  // a prefetch of the warm-up may hold old weights
  return 0;
}

void Stepper::finish_step(const Tensor& losses, BatchTokens tokens, const StepRequest& request,
                          Advance& result) {
  const NamedRange range(context_.device(), [] { return std::string("optimizer"); });
  const bool close = request.close || keeps_gradients_ || tokens.counted == 0 ||
                     !(unchecked_ || (post_validation() && unclipped_));
  const bool is_primary =
      topology_.place(Group::pipeline) == model_.last_stage_rank() && topology_.leads_layers();
  // Enqueued before the host waits for the loss.
  const Tensor squares = gradient_squares(context_, buckets_, topology_);
  const double loss = is_primary ? sum_on_host(context_, losses) : 0;
  check_.begin(context_, squares, runner_->statistics(), is_primary ? &loss : nullptr,
               topology_.place(Group::loss),
               {request.stop != nullptr && request.stop->load(), request.save}, tokens,
               close ? Async::no : Async::yes);
  const bool optimistic = !close && !unchecked_;
  model_.set_provisional(optimistic);
  if (close) wait_for_result(result.current.emplace());
  context_.mark(clock_.checked);
  if (optimistic) roll_back_->keep(context_);
  const bool updates = !updates_each_microbatch();             // else each micro-batch did
  if (updates) update(result.current.value_or(StepResult{}));  // open: optimistic or unchecked
  context_.mark(clock_.updated);
  if (updates && (!result.current || result.current->applied))
    model_.gathering().gather_updated(context_);
  context_.mark(clock_.end);
}

Advance Stepper::advance(const std::vector<HostMicroBatch>& batches, const StepRequest& request) {
  begin_iteration(batches);
  const auto& list = executed_->lists[static_cast<std::size_t>(topology_.place(Group::pipeline))];
  const std::int64_t iterations = lists_->iterations.count();
  const bool continues = schedule().asynchronous() && iteration_ + 1 < iterations;
  Advance result;
  std::size_t done = 0;
  if (model_.provisional()) done = run_warm_up(list, result);
  if (!result.ran) {
    runner_->finish();
    context_.synchronize();
    return result;
  }
  learning_rate_ = request.learning_rate;
  // PipeDream's update uses the mean over the tokens of one micro-batch of all data-parallel ranks.
  const BatchTokens tokens = tokens_of(batches);
  const double updates = updates_each_microbatch() ? schedule().microbatches : 1;
  gradient_scale_ = loss_scale_.value();
  const double counted = tokens.counted > 0 ? tokens.counted : 1;  // else all gradients are 0
  runner_->scale_losses(static_cast<float>(gradient_scale_ / (counted / updates)),
                        static_cast<float>(gradient_scale_ / (tokens.all / updates)));
  begin_gradients();
  if (const auto* again = std::exchange(in_flight_, nullptr)) {
    execute(again->actions, *runner_, repeated_);
  }
  execute(list, done, list.size(), *runner_, trace_);
  const Tensor losses = runner_->finish(continues);
  iteration_ = (iteration_ + 1) % iterations;
  context_.mark(clock_.executed);
  if (!updates_each_microbatch()) finish_gradients();
  context_.mark(clock_.reduced);
  if (check_.open()) wait_for_result(result.previous.emplace());
  finish_step(losses, tokens, request, result);
  context_.synchronize();
  return result;
}

}  // namespace trident
