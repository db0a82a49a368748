// Trains a rank's model, iteration by iteration: runs the schedule, reduces gradients, checks the
// step over all ranks, updates, and rolls back what was updated too early. What a trainer, a
// benchmark, the plan and a test drive.
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

// What a trainer asks of a training iteration.
struct StepRequest {
  double learning_rate = 0;
  // Set by whoever wants the run to end; what the ranks see of it at the end of an iteration
  // becomes StepResult::stop of all. May be null.
  const std::atomic<bool>* stop = nullptr;
  bool save = false;  // this rank wants a checkpoint soon: StepResult::save of all
  bool close = true;  // false: the iteration's result may come with the next one
};

// What an iteration brought to light.
struct Advance {
  std::optional<StepResult> before;  // of the iteration before, if it was open
  std::optional<StepResult> own;     // of this one, unless it stays open
  bool ran = true;                   // false: the one before ends the run, so this one was given up
};

// Clocks at the edges of a step's parts on this rank.
struct StepClock {
  ClockReading begin, executed, reduced, checked, updated, end;
};

class Stepper {
 public:
  // For a run of training.train_iters iterations of the config's schedule. Allocates master
  // weights, gradients and optimizer state: made before the model has its initial weights, which
  // set the masters too. The model outlives it. Collective over the topology's world.
  Stepper(RankModel&, const Schedule& schedule);
  // With lists that several ranks share.
  Stepper(RankModel&, std::shared_ptr<const RunLists>);
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  // One update from this rank's micro-batches of the global batch (the same number on all ranks).
  // Reduces, clips, checks, updates. Where something is not finite the update is left out on every
  // rank. Under an asynchronous schedule ranks run ahead: behind the iteration's own micro-batches
  // come look_ahead() of the iterations after it. PipeDream updates after every micro-batch, so
  // nothing is clipped or left out, and the norm is that of the last micro-batch's gradient.
  StepResult train(const std::vector<HostMicroBatch>&, double learning_rate);
  // The same for a run that goes on. Where a rank's next iteration can begin while others still
  // finish this one (post_validation()), the weights are updated at once, on the assumption that
  // nothing is clipped and all is finite; what all ranks found is looked at in the next iteration,
  // after its warm-up (scheduler/warm_up.h), and a wrong update is rolled back there, to the bit.
  // While clipping is at work no update is optimistic. Asynchronous schedules that neither clip nor
  // skip look at the end of the next iteration and roll nothing back.
  Advance advance(const std::vector<HostMicroBatch>&, const StepRequest&);
  // The result of the last iteration, if it is open.
  std::optional<StepResult> wait_for_result();
  // ModelStageRunner::keep_sent().
  void keep_sent(const SentMessages&);
  bool post_validation() const { return roll_back_ != nullptr && !lists_->warm_up.length.empty(); }
  // Asynchronous, and nothing that all ranks have to know changes an update.
  bool updates_unchecked() const { return unchecked_; }
  // Optimistic updates that were rolled back, in all.
  std::int64_t rolled_back() const { return rolled_back_; }
  // Micro-batches of later iterations that the next train() needs, or one that comes `later`.
  int look_ahead(std::int64_t later = 0) const;
  // The next iterations of a synchronous run have another number of micro-batches, by these lists.
  // After wait_for_result(), or an iteration whose result came with it.
  void set_lists(std::shared_ptr<const RunLists>);
  // Updates that the present weights have had, one each iteration but under PipeDream.
  std::int64_t weight_version() const;

  // What this rank needs to go on: weights, masters and optimizer state, gradients if they are
  // there, and numbers. After wait_for_result(). What is written to masters, state and numbers is
  // taken up by restored().
  State state();
  // Called before anything of the state changes, as often as it does in a step: for whoever still
  // reads it.
  void before_update(std::function<void()> call) { before_update_ = std::move(call); }
  // Collective: the weights follow the masters, on all ranks.
  void restored();
  // Of the weights after their updates (training.ema_decay).
  bool has_average() const;
  // Collective: the weights become their average. After that nothing is trained.
  void take_average();
  // An iteration is over, with its gradients there, when train() or advance() returns.
  void keep_gradients(bool keep) { keeps_gradients_ = keep; }
  // They are multiplied by this.
  double gradient_scale() const { return gradient_scale_; }

  RankModel& model() const { return model_; }
  Context& context() const { return context_; }
  const Topology& topology() const { return topology_; }
  const Schedule& schedule() const { return lists_->schedule; }
  // What all ranks ran in the last train(): the schedule but for asynchronous ones.
  const IterationLists::Iteration& executed() const { return *executed_; }
  const ExecutionTrace& trace() const { return trace_; }  // of the last train()
  const StepClock& clock() const { return clock_; }       // of the last train()
  const ProcessGroup& check_group() const { return check_.group(); }
  // Bytes that this rank has sent for the checks that have ended, beside the groups' own.
  std::int64_t check_bytes_sent() const { return check_.bytes_sent(); }

 private:
  bool updates_each_microbatch() const { return schedule().updates == Updates::each_microbatch; }
  double batch_tokens() const;  // of an iteration, all ranks
  void keep_for_roll_back();
  // What is in flight between two iterations of an asynchronous run is computed again, from the
  // same weights: of records and messages nothing has to be saved. Weights of older versions, and
  // an update after each micro-batch where the schedule has that.
  void become_asynchronous();
  // The parts of advance().
  void begin_iteration(const std::vector<HostMicroBatch>& batches);
  // Runs the warm-up and settles the iteration before; gives the actions of `list` that stand.
  std::size_t run_warm_up(const std::vector<LoweredAction>& list, Advance& result);
  // Check, update, weights for all.
  void finish_step(const Tensor& losses, const StepRequest& request, Advance& result);
  // Changes the weights by the reduced gradients, as a step's result says.
  void update(double clipping);
  void update(const StepResult&);
  double clipping(const StepResult&) const;
  // Ends the open check; true where the update was rolled back.
  bool wait_for_result(StepResult& result);

  RankModel& model_;
  Context& context_;  // these four of the model
  const Config& config_;
  const Topology& topology_;
  ParameterBuckets& buckets_;
  std::shared_ptr<const RunLists> lists_;
  const IterationLists::Iteration* executed_;
  std::int64_t iteration_ = 0;
  // What the run that goes on had in flight, which the first iteration does again.
  const IterationLists::InFlight* in_flight_ = nullptr;
  ExecutionTrace repeated_;  // of that
  std::unique_ptr<GradientReduction> gradients_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<RollBack> roll_back_;  // where updates are optimistic
  std::unique_ptr<ModelStageRunner> runner_;
  double learning_rate_ = 0;   // of the last update, or of the iteration that runs
  LossScale loss_scale_;       // for the next iteration
  double gradient_scale_ = 1;  // loss scale of the gradients that are there, or being made
  StepCheck check_;
  bool unchecked_ = false;
  bool unclipped_ = false;  // the last result was applied as it was
  std::int64_t rolled_back_ = 0;
  ExecutionTrace trace_;
  StepClock clock_;
  bool keeps_gradients_ = false;
  std::function<void()> before_update_;
};

}  // namespace trident
