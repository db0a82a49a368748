// Trains a rank's model, iteration by iteration. Each iteration runs the schedule, reduces
// gradients, checks the step over all ranks, updates the weights, and rolls back an update that was
// too early. Trainers, benchmarks, the planner and tests use it. The rank's thread calls it. All
// ranks make the same calls in the same order.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/context.h"
#include "datasets/batch_sampler.h"
#include "engine/expert_bias.h"
#include "engine/loss_scale.h"
#include "engine/optimizer/optimizer.h"
#include "engine/rank_model.h"
#include "engine/roll_back.h"
#include "engine/stage_runner.h"
#include "engine/step_check.h"
#include "parallel/state.h"
#include "parallel/zero/gradient_reduction.h"
#include "scheduler/action.h"
#include "scheduler/execute.h"
#include "scheduler/run_lists.h"

namespace trident {

class SentMessages;

// A trainer's request for a training iteration.
struct StepRequest {
  double learning_rate = 0;
  // Set to end the run, from any thread; may be null. The values at the end of an iteration are
  // combined to StepResult::stop of all ranks.
  const std::atomic<bool>* stop = nullptr;
  bool save = false;  // this rank wants a checkpoint soon: StepResult::save of all
  bool close = true;  // false: the iteration's result may come with the next one
};

// The results that become known in an iteration.
struct Advance {
  std::optional<StepResult> previous;  // of the iteration before, if it was open
  std::optional<StepResult> current;   // of this iteration, unless it stays open
  bool ran = true;  // false: the one before ends the run, so this one was dropped
};

// Clock readings between the parts of a step on this rank.
struct StepClock {
  ClockReading begin, executed, reduced, checked, updated, end;
};

class Stepper {
 public:
  // For a run of training.train_iters iterations of the config's schedule. Allocates master
  // weights, gradients and optimizer state. Make it before the model gets its initial weights,
  // which set the masters too. The model must outlive it. Collective over the topology's world.
  Stepper(RankModel&, const Schedule& schedule);
  // As above, with lists that several ranks share.
  Stepper(RankModel&, std::shared_ptr<const RunLists>);
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  // Runs one iteration on this rank's micro-batches of the global batch (the same number on all
  // ranks). It reduces gradients, checks, clips and updates. If loss or gradient is not finite,
  // every rank skips the update. Under an asynchronous schedule ranks run ahead: `batches` has
  // look_ahead() micro-batches of later iterations after the iteration's own. PipeDream updates
  // after every micro-batch, so it neither clips nor skips, and the norm is of the last
  // micro-batch's gradient.
  StepResult train(const std::vector<HostMicroBatch>&, double learning_rate);
  // As train(), for an iteration after which the run continues. With post_validation(), a rank
  // begins its next iteration while others finish this one. It updates the weights at once,
  // assuming that all figures are finite and no clipping is needed. The next iteration reads the
  // step check after its warm-up (scheduler/warm_up.h) and rolls a wrong update back, bitwise.
  // While gradients are being clipped no update is optimistic. Asynchronous schedules that neither
  // clip nor skip read the step check at the end of the next iteration and roll no update back.
  Advance advance(const std::vector<HostMicroBatch>&, const StepRequest&);
  // Waits for the result of the last iteration if it is open; else returns nullopt.
  std::optional<StepResult> wait_for_result();
  // Calls ModelStageRunner::keep_sent().
  void keep_sent(const SentMessages&);
  bool post_validation() const { return roll_back_ != nullptr && !lists_->warm_up.length.empty(); }
  // True for an asynchronous schedule whose updates don't depend on the step check.
  bool updates_unchecked() const { return unchecked_; }
  // The total number of optimistic updates that were rolled back.
  std::int64_t rolled_back() const { return rolled_back_; }
  // The number of micro-batches of later iterations that the next train() needs, or the train()
  // `later` iterations after it.
  int look_ahead(std::int64_t later = 0) const;
  // Replaces the lists of a synchronous run, so that its next iterations have another number of
  // micro-batches. Call it after wait_for_result(), or after an iteration that returned its own
  // result. Throws Error otherwise, or if the stages differ.
  void set_lists(std::shared_ptr<const RunLists>);
  // The number of updates of the current weights: one per iteration, except under PipeDream.
  std::int64_t weight_version() const;

  // The state that this rank needs to resume: weights, masters, optimizer state, gradients if they
  // are kept, and numbers. Call it after wait_for_result(). After writing to masters, state or
  // numbers call restored().
  State state();
  // `call` runs before each change of the state, which may be several times per step. It lets a
  // concurrent reader of the state finish.
  void before_update(std::function<void()> call) { before_update_ = std::move(call); }
  // Recomputes the weights from the masters on all ranks. Collective.
  void restored();
  // Whether there is an average of the weights (training.ema_decay); false before the first update.
  bool has_average() const;
  // Replaces the weights by their average. No training is possible afterwards. Collective.
  void take_average();
  // If set, each train() or advance() finishes its iteration and leaves its gradients available.
  void keep_gradients(bool keep) { keeps_gradients_ = keep; }
  // The factor that these gradients contain.
  double gradient_scale() const { return gradient_scale_; }

  RankModel& model() const { return model_; }
  Context& context() const { return context_; }
  const Topology& topology() const { return topology_; }
  const Schedule& schedule() const { return lists_->schedule; }
  // The lists that all ranks ran in the last train(): the schedule's, except for asynchronous
  // schedules.
  const IterationLists::Iteration& executed() const { return *executed_; }
  const ExecutionTrace& trace() const { return trace_; }  // of the last train()
  const StepClock& clock() const { return clock_; }       // of the last train()
  const ProcessGroup& check_group() const { return check_.group(); }
  // The bytes that this rank has sent for ended checks, in addition to the groups' traffic.
  std::int64_t check_bytes_sent() const { return check_.bytes_sent(); }

 private:
  bool updates_each_microbatch() const { return schedule().updates == Updates::each_microbatch; }
  // Of this iteration, all ranks.
  BatchTokens tokens_of(const std::vector<HostMicroBatch>&) const;
  void keep_for_roll_back();
  // Of all gradients, and of the counts by which experts are balanced.
  void begin_gradients();
  void finish_gradients();
  // Prepares an asynchronous schedule: it keeps older versions of the weights and, if the schedule
  // does, updates after each micro-batch. A resumed run recomputes the micro-batches in flight from
  // the same weights, so no activations or messages have to be saved.
  void become_asynchronous();
  // The parts of advance().
  void begin_iteration(const std::vector<HostMicroBatch>& batches);
  // Runs the warm-up and waits for the result of the iteration before. Returns the number of
  // actions of `list` that remain valid.
  std::size_t run_warm_up(const std::vector<LoweredAction>& list, Advance& result);
  // Step check, update, and gathering of the updated weights.
  void finish_step(const Tensor& losses, BatchTokens tokens, const StepRequest& request,
                   Advance& result);
  // Updates the weights by the reduced gradients, as a step's result says.
  void update(double clipping);
  void update(const StepResult&);
  double clipping(const StepResult&) const;
  // Ends the open check. Returns true if the update was rolled back.
  bool wait_for_result(StepResult& result);

  RankModel& model_;
  Context& context_;  // these four belong to the model
  const Config& config_;
  const Topology& topology_;
  ParameterBuckets& buckets_;
  std::shared_ptr<const RunLists> lists_;
  const IterationLists::Iteration* executed_;
  std::int64_t iteration_ = 0;
  // The micro-batches that a resumed run had in flight; the first iteration runs them again.
  const IterationLists::InFlight* in_flight_ = nullptr;
  ExecutionTrace repeated_;  // of in_flight_
  std::unique_ptr<GradientReduction> gradients_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<ExpertBiases> expert_biases_;
  std::unique_ptr<RollBack> roll_back_;  // null unless updates are optimistic
  std::unique_ptr<ModelStageRunner> runner_;
  double learning_rate_ = 0;   // of the last update, or of the current iteration
  LossScale loss_scale_;       // for the next iteration
  double gradient_scale_ = 1;  // the loss scale in the current gradients
  StepCheck check_;
  bool unchecked_ = false;
  bool unclipped_ = false;  // the last result was applied without clipping
  std::int64_t rolled_back_ = 0;
  ExecutionTrace trace_;
  StepClock clock_;
  bool keeps_gradients_ = false;
  std::function<void()> before_update_;
};

}  // namespace trident
