#include "run/loop/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>

#include "base/error.h"
#include "base/units.h"
#include "engine/finite_weights.h"
#include "engine/optimizer/learning_rate.h"
#include "engine/setup/from_config.h"
#include "formats/hugging_face/hugging_face.h"
#include "formats/hugging_face/weights_folder.h"

namespace trident {
namespace {

// A run that goes on takes the sample after the last one, whatever its batches are now.
BatchShape training_shape(const TrainingInputs& inputs, const Topology& topology,
                          const RankModel& model) {
  BatchShape shape = batch_shape(inputs.config, topology);
  shape.tokens = model.reads_tokens();
  shape.global_batch_size = inputs.batches;
  return shape;
}

}  // namespace

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
      saver_(inputs, hooks, stepper_, transport.nodes(), files_, reporter_),
      train_(inputs.datasets.train, training_shape(inputs, topology_, model_)),
      ahead_(
          [this](std::int64_t k, std::int64_t count) { return read_training_batches(k, count); }),
      extras_(inputs.extras) {
  for (const auto& [name, dataset] : inputs.datasets.validation) {
    BatchShape shape = batch_shape(config_, topology_);
    shape.tokens = model_.reads_tokens();
    validation_.emplace_back(name, BatchSampler(dataset, shape));
  }
}

TrainingSummary TrainingRun::run() {
  begin();
  std::exception_ptr error;
  if (!stopped_) {
    try {
      train();
    } catch (const CommunicationError&) {
      throw;  // the others are gone, or know of an error
    } catch (...) {
      saver_.finish_alone();  // of which this rank's part is all that could be missing
      throw;
    }
    try {
      saver_.finish();
      if (failure_.empty()) save();
    } catch (...) {
      error = std::current_exception();  // after the report of what has run
    }
    if (next_ > inputs_.first_iteration || done_ > inputs_.first_iteration) reporter_.end();
    if (error) std::rethrow_exception(error);
    files_.barrier(context_);
    if (!failure_.empty()) throw Error(failure_);
  }
  TrainingSummary summary = reporter_.take_summary();
  summary.stopped = stopped_;
  return summary;
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
  const LoggingConfig& logging = config_.logging;
  if (!logging.trace || logging.trace_at.empty()) {
    const std::int64_t second = inputs_.first_iteration + 1;
    return logging.trace && k == std::min(second, config_.training.train_iters - 1);
  }
  return std::ranges::find(logging.trace_at, k + 1) != logging.trace_at.end();
}

bool TrainingRun::iteration(std::int64_t k) {
  const auto& dumps = config_.logging.dump_gradients_at;
  const bool dump = std::find(dumps.begin(), dumps.end(), k + 1) != dumps.end();
  const std::vector<HostMicroBatch> micro_batches = training_batches(k);
  const std::int64_t own = train_.micro_batches(k);
  if (own != stepper_.schedule().microbatches) stepper_.use(inputs_.ramp_lists->of(own));
  const std::int64_t interval = config_.training.eval_interval;
  const bool evaluates =
      k + 1 == config_.training.train_iters || (interval > 0 && (k + 1) % interval == 0);
  const bool saves = saver_.due(k + 1) || save_asked_;
  const bool grows = train_.micro_batches(k + 1) != own;
  monitor_.begin(is_drawn(k));
  stepper_.keep_gradients(dump);
  const double rate = learning_rate(config_.scheduler, config_.optimizer.params.lr, k);
  const ClockReading begin = read_clock();
  Advance steps = stepper_.advance(micro_batches, {.learning_rate = rate,
                                                   .stop = hooks_.stop,
                                                   .save = saver_.asked(),
                                                   .close = evaluates || saves || grows});
  const double seconds = static_cast<double>(read_clock().wall_ns - begin.wall_ns) * 1e-9;
  const bool goes_on = !steps.before || report(last_, *steps.before, false);
  if (!steps.ran) return false;
  if (!goes_on && !steps.own) steps.own = stepper_.settle();
  if (!failure_.empty()) return false;

  saver_.iterated(seconds);
  saver_.look();
  last_ = {k, rate, seconds, stepper_.weight_version()};
  done_ = k + 1;
  validation_loss_.reset();
  if (dump) dump_gradients(k);
  monitor_.end();
  if (!steps.own) return true;
  if (!report(last_, *steps.own, evaluates)) return false;
  if (saver_.due(done_) || save_asked_) save_checkpoint();
  return true;
}

void TrainingRun::save_checkpoint() {
  saver_.save({done_, skipped_, validation_loss_}, save_asked_);
  save_asked_ = false;
}

bool TrainingRun::report(const CompletedIteration& iteration, const StepResult& step,
                         bool evaluates) {
  if (step.applied) {
    skipped_ = 0;
  } else {
    look_at_skipped(iteration.k, step);
  }
  if (step.stop) stopped_ = true;
  if (step.save) save_asked_ = true;
  const StepFigures figures = monitor_.collect();
  std::vector<std::pair<std::string, double>> validation_loss;
  if (evaluates && !stopped_ && failure_.empty()) validation_loss = validate();
  if (!validation_loss.empty()) validation_loss_ = validation_loss.front().second;
  CompletedIteration told = iteration;
  told.save_pause_ms = saver_.take_pause();
  told.failed_saves = saver_.failures();
  reporter_.iteration(told, step, figures, validation_loss, is_drawn(iteration.k));
  return !stopped_ && failure_.empty();
}

std::vector<HostMicroBatch> TrainingRun::batches(BatchSampler& sampler, std::int64_t iteration) {
  std::vector<HostMicroBatch> list(static_cast<std::size_t>(sampler.micro_batches(iteration)));
  const FileWork reading = world_.file_work();
  try {
    for (std::size_t i = 0; i < list.size(); ++i) {
      sampler.fill(iteration, static_cast<std::int64_t>(i), list[i]);
    }
  } catch (const RequestError& error) {
    throw Error(error.what());  // a bad token is found when it is read: the run has started
  }
  return list;
}

std::vector<HostMicroBatch> TrainingRun::read_training_batches(std::int64_t k, std::int64_t count) {
  // More than its own are those of later iterations, of an asynchronous run's constant batches.
  const std::int64_t own = train_.micro_batches(k);
  std::vector<HostMicroBatch> list(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(list.size()); ++i) {
    train_.fill(k + i / own, i % own, list[static_cast<std::size_t>(i)]);
  }
  return list;
}

std::vector<HostMicroBatch> TrainingRun::training_batches(std::int64_t k) {
  const FileWork reading = world_.file_work();
  try {
    const bool more = k + 1 < config_.training.train_iters;
    return ahead_.take(k, train_.micro_batches(k) + stepper_.look_ahead(),
                       more ? train_.micro_batches(k + 1) + stepper_.look_ahead(1) : 0);
  } catch (const RequestError& error) {
    throw Error(error.what());  // a bad token is found when it is read: the run has started
  }
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
  const std::int64_t first = inputs_.batches.first_sample(k);
  const std::string what = fmt::format(
      "iteration {}: loss {}, gradient norm {}: not finite; samples {} to {}", k + 1,
      std::abs(step.loss), step.grad_norm, first, inputs_.batches.first_sample(k + 1) - 1);
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
    failure_ =
        what + fmt::format("; {} in a row skipped, as many as training.max_skipped_steps allows",
                           counted(skipped_, "step"));
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
  if (stopped_) reporter_.message("stopping, saving to " + directory);
  if (!weights_are_finite(model_)) {
    failure_ = "the weights are not finite: they are not saved, " + directory + " stays as it was";
    return;
  }
  const bool saves = stopped_ || saver_.active();
  const bool failed = saves && !saver_.save_last({done_, skipped_, validation_loss_});
  try {
    if (reporter_.leads() && hooks_.hold_saves) {
      if (const std::string what = hooks_.hold_saves(); !what.empty()) reporter_.message(what);
    }
    save_hugging_face(model_, files_, directory, extras_);
  } catch (const RequestError& error) {
    throw Error(error.what());  // the run has started, whatever it finds now
  }
  reporter_.wrote(directory);
  if (stepper_.has_average()) {
    stepper_.take_average();
    const std::string average = directory + "/ema";
    try {
      save_hugging_face(model_, files_, average, extras_);
    } catch (const RequestError& error) {
      throw Error(error.what());
    }
    reporter_.wrote(average);
  } else if (reporter_.leads() && !weights_in(directory + "/ema").empty()) {
    reporter_.message(fmt::format(
        "warning: {}/ema stays as it was: it is no average of the weights that are saved now",
        directory));
  }
  if (failed) {
    failure_ = "the last checkpoint could not be saved";
  } else if (stopped_) {
    const CheckpointConfig& asked = config_.checkpoint;
    const bool goes_on = asked.resume != "never" && !is_iteration(asked.load);
    reporter_.message(fmt::format("saved after iteration {}{}", done_,
                                  goes_on ? "; the same command goes on from there" : ""));
  }
}

}  // namespace trident
