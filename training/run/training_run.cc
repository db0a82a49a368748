#include "training/run/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>

#include "core/error.h"
#include "training/engine/finite_weights.h"
#include "training/engine/replicas.h"
#include "training/hugging_face/hugging_face.h"
#include "training/optimizer/learning_rate.h"
#include "training/run/agreement.h"
#include "training/setup/from_config.h"

namespace trident {

TrainingRun::TrainingRun(const TrainingInputs& inputs, Transport& transport, Context& context,
                         const TrainerHooks& hooks)
    : inputs_(inputs),
      config_(inputs.config),
      hooks_(hooks),
      context_(context),
      world_(transport.world()),
      files_(world_.patient("files")),
      topology_(topology_of(config_, inputs.schedule, transport)),
      model_(context_, config_, *inputs.architecture, inputs.schedule, topology_),
      stepper_(model_, inputs.lists),
      evaluator_(model_, inputs.lists),
      monitor_(stepper_, world_.duplicate("monitor")),
      reporter_(inputs, world_, hooks),
      train_(inputs.datasets.train, batch_shape(config_, topology_)),
      extras_(inputs.extras) {
  for (const auto& [name, dataset] : inputs.datasets.validation) {
    validation_.emplace_back(name, BatchSampler(dataset, batch_shape(config_, topology_)));
  }
}

TrainingSummary TrainingRun::run() {
  begin();
  std::exception_ptr error;
  if (!stopped_) {
    train();
    try {
      if (failure_.empty()) save();
    } catch (...) {
      error = std::current_exception();  // after the report of what has run
    }
    reporter_.end();
    if (error) std::rethrow_exception(error);
    files_.barrier(context_);
    if (!failure_.empty()) throw Error(failure_);
  }
  TrainingSummary summary = reporter_.take_summary();
  summary.stopped = stopped_;
  return summary;
}

void TrainingRun::begin() {
  // `trident train` has compared more before, which other programs need not do.
  require_same_config(config_, context_, world_);
  for (const std::string& warning : topology_.warnings) reporter_.message("warning: " + warning);
  if (inputs_.saves_tokenizer() && !inputs_.extras.files.contains("tokenizer.json")) {
    reporter_.message("warning: config: /data/tokenizer/path: there is no file \"" +
                      config_.data.tokenizer.path + "\"; the saved weights go without a tokenizer");
  }
  take_weights();
  stopped_ = stop_of_any();
  if (stopped_) return reporter_.message("stopped before the first iteration: nothing is saved");
  require_equal_replicas(model_);
  if (reporter_.leads() && hooks_.on_begin) extras_.run_id = hooks_.on_begin();
  reporter_.begin();
  files_.barrier(context_);
  context_.ledger().reset_peaks();
}

void TrainingRun::take_weights() {
  if (inputs_.restore) {
    restore();
  } else if (config_.checkpoint.load.empty()) {
    model_.initialise();
  } else {
    load_hugging_face(model_, config_.checkpoint.load, hooks_.stop);
  }
}

void TrainingRun::restore() {
  State state = stepper_.state();
  state.numbers.push_back({"iteration", &next_});
  state.numbers.push_back({"skipped", &skipped_});
  inputs_.restore(context_, state);
  if (next_ != inputs_.first_iteration) {
    throw Error(fmt::format("the state is of iteration {}, the run begins at {}", next_,
                            inputs_.first_iteration));
  }
  stepper_.restored();
}

bool TrainingRun::stop_of_any() {
  // Disks may be slow: ranks wait for each other as long as it takes.
  const std::int64_t stop = hooks_.stop != nullptr && hooks_.stop->load() ? 1 : 0;
  const Tensor stops =
      context_.from_host<std::int64_t>({1}, std::span(&stop, 1), Category::workspace);
  files_.barrier(context_);
  world_.all_reduce(context_, stops);
  return context_.to_host<std::int64_t>(stops).front() != 0;
}

void TrainingRun::train() {
  for (; next_ < config_.training.train_iters; ++next_) {
    if (!iteration(next_)) break;
  }
}

bool TrainingRun::is_drawn(std::int64_t k) const {
  return config_.logging.trace &&
         k == std::min(inputs_.first_iteration + 1, config_.training.train_iters - 1);
}

bool TrainingRun::iteration(std::int64_t k) {
  const auto& dumps = config_.logging.dump_gradients_at;
  const bool dump = std::find(dumps.begin(), dumps.end(), k + 1) != dumps.end();
  const std::vector<HostMicroBatch> micro_batches = training_batches(k);
  const std::int64_t interval = config_.training.eval_interval;
  const bool evaluates =
      k + 1 == config_.training.train_iters || (interval > 0 && (k + 1) % interval == 0);
  monitor_.begin(is_drawn(k));
  stepper_.keep_gradients(dump);
  const double rate = learning_rate(config_.scheduler, config_.optimizer.params.lr, k);
  const ClockReading begin = read_clock();
  Advance steps = stepper_.advance(
      micro_batches, {.learning_rate = rate, .stop = hooks_.stop, .close = evaluates});
  const double seconds = static_cast<double>(read_clock().wall_ns - begin.wall_ns) * 1e-9;
  const bool goes_on = !steps.before || report(last_, *steps.before, false);
  if (!steps.ran) return false;
  if (!goes_on && !steps.own) steps.own = stepper_.settle();
  if (!failure_.empty()) return false;

  last_ = {k, rate, seconds, stepper_.weight_version()};
  if (dump) dump_gradients(k);
  monitor_.end();
  return !steps.own || report(last_, *steps.own, evaluates);
}

bool TrainingRun::report(const CompletedIteration& iteration, const StepResult& step,
                         bool evaluates) {
  if (step.applied) {
    skipped_ = 0;
  } else {
    look_at_skipped(iteration.k, step);
  }
  if (step.stop) stopped_ = true;
  const StepFigures figures = monitor_.collect();
  std::vector<std::pair<std::string, double>> validation_loss;
  if (evaluates && !stopped_ && failure_.empty()) validation_loss = validate();
  reporter_.iteration(iteration, step, figures, validation_loss, is_drawn(iteration.k));
  return !stopped_ && failure_.empty();
}

HostMicroBatch TrainingRun::batch(BatchSampler& sampler, std::int64_t iteration,
                                  std::int64_t index) {
  HostMicroBatch batch;
  const FileWork reading = world_.file_work();
  try {
    sampler.fill(iteration, index, batch);
  } catch (const RequestError& error) {
    throw Error(error.what());  // a bad token is found when it is read: the run has started
  }
  return batch;
}

std::vector<HostMicroBatch> TrainingRun::batches(BatchSampler& sampler, std::int64_t iteration) {
  std::vector<HostMicroBatch> list;
  const FileWork reading = world_.file_work();
  for (std::int64_t i = 0; i < sampler.micro_batches(); ++i) {
    list.push_back(batch(sampler, iteration, i));
  }
  return list;
}

std::vector<HostMicroBatch> TrainingRun::training_batches(std::int64_t k) {
  const FileWork reading = world_.file_work();  // all of it: parts may each be short
  std::vector<HostMicroBatch> list = batches(train_, k);
  const auto own = static_cast<std::int64_t>(list.size());
  for (std::int64_t i = 0; i < stepper_.look_ahead(); ++i) {
    list.push_back(batch(train_, k + 1 + i / own, i % own));
  }
  return list;
}

std::vector<std::pair<std::string, double>> TrainingRun::validate() {
  std::vector<std::pair<std::string, double>> losses;
  for (auto& [name, sampler] : validation_) {
    double total = 0;
    for (std::int64_t i = 0; i < config_.training.eval_iters; ++i) {
      const auto loss = evaluator_.mean_loss(batches(sampler, i), hooks_.stop);
      if (!loss) {
        stopped_ = true;
        return {};
      }
      total += *loss;
    }
    losses.emplace_back(name, total / static_cast<double>(config_.training.eval_iters));
  }
  return losses;
}

void TrainingRun::look_at_skipped(std::int64_t k, const StepResult& step) {
  const std::int64_t first = k * config_.batch.global_batch_size;
  const std::string what = fmt::format(
      "iteration {}: loss {}, gradient norm {}: not finite; samples {} to {}", k + 1,
      std::abs(step.loss), step.grad_norm, first, first + config_.batch.global_batch_size - 1);
  if (stepper_.updates_unchecked()) {
    failure_ = what + "; " + stepper_.schedule().kind + " has updated the weights meanwhile";
    return;
  }
  if (step.rescales) {
    reporter_.message(what + fmt::format("; step skipped, at loss scale {}", step.loss_scale));
    return;
  }
  if (config_.training.on_non_finite == "stop") {
    failure_ = what +
               "; no weight was changed by this iteration "
               "(training.on_non_finite: \"skip\" leaves it out and goes on)";
    return;
  }
  if (++skipped_ >= config_.training.max_skipped_steps) {
    failure_ = what + fmt::format(
                          "; {} step(s) in a row were skipped, as many as "
                          "training.max_skipped_steps allows",
                          skipped_);
    return;
  }
  reporter_.message(
      what + (step.rolled_back ? "; step skipped: its update was rolled back" : "; step skipped"));
}

void TrainingRun::dump_gradients(std::int64_t k) {
  const std::string path = fmt::format("{}/gradients-{}.safetensors", config_.logging.dir, k + 1);
  const std::string failure = save_gradients(stepper_, files_, path);
  if (failure.empty()) {
    reporter_.wrote(path);
  } else {
    reporter_.failed("gradients", failure);
  }
}

void TrainingRun::save() {
  const std::string& directory = config_.checkpoint.save;
  if (directory.empty()) return;
  if (stopped_) reporter_.message("stopping, saving the weights to " + directory);
  if (!weights_are_finite(model_)) {
    failure_ = "the weights are not finite: they are not saved, " + directory + " stays as it was";
    return;
  }
  if (reporter_.leads() && hooks_.still_held) hooks_.still_held();
  try {
    save_hugging_face(model_, files_, directory, extras_);
  } catch (const RequestError& error) {
    throw Error(error.what());  // the run has started, whatever it finds now
  }
  reporter_.wrote(directory);
}

}  // namespace trident
