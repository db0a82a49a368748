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
#include "engine/replicas.h"
#include "engine/setup/from_config.h"
#include "formats/hugging_face/hugging_face.h"
#include "run/loop/final_weights.h"
#include "run/loop/first_state.h"
#include "run/loop/start_report.h"
#include "run/processes/agreement.h"

namespace trident {
TrainingRun::TrainingRun(const TrainingInputs& inputs, Transport& transport, Context& context,
                         const TrainerHooks& hooks)
    : inputs_(inputs),
      hooks_(hooks),
      context_(context),
      world_(transport.world()),
      files_(world_.without_timeout("files")),
      topology_(topology_of(inputs.config.parallel, inputs.schedule, transport)),
      model_(context_, inputs.config, *inputs.architecture, inputs.schedule, topology_),
      stepper_(model_, inputs.begin.lists),
      evaluator_(model_, inputs.begin.lists),
      monitor_(stepper_, world_.duplicate("monitor")),
      reporter_(inputs, world_, hooks),
      saver_(inputs, hooks, stepper_, transport.nodes(), files_, reporter_),
      data_(inputs, world_, topology_, model_),
      extras_(inputs.extras) {}

TrainingSummary TrainingRun::run() {
  begin();
  std::exception_ptr error;
  if (!stopped_) {
    try {
      train();
    } catch (const CommunicationError&) {
      throw;  // other ranks have ended, or know of an error
    } catch (...) {
      saver_.finish_alone();  // an asynchronous save may lack only this rank's part
      throw;
    }
    try {
      saver_.finish();
      if (failure_.empty()) save();
    } catch (...) {
      error = std::current_exception();  // thrown after the report
    }
    if (progress_.iterations > inputs_.begin.iteration) reporter_.end();
    if (error) std::rethrow_exception(error);
    files_.barrier(context_);
    if (!failure_.empty()) throw Error(failure_);
  }
  TrainingSummary summary = reporter_.take_summary();
  summary.stopped = stopped_;
  return summary;
}

void TrainingRun::begin() {
  // `trident train` has compared more at its rendezvous; other programs have compared nothing.
  require_same_config(inputs_.config, context_, world_);
  for (const std::string& warning : topology_.warnings) reporter_.message("warning: " + warning);
  if (inputs_.saves_tokenizer() && !inputs_.extras.files.contains("tokenizer.json")) {
    reporter_.message("warning: config: /data/tokenizer/path: there is no file \"" +
                      inputs_.config.data.tokenizer.path +
                      "\"; the saved weights go without a tokenizer");
  }
  const FirstState first = take_first_state(inputs_, hooks_, stepper_, files_);
  progress_ = {.iterations = inputs_.begin.iteration, .skipped = first.skipped};
  stopped_ = stop_of_any();
  if (stopped_) return reporter_.message("stopped before the first iteration: nothing is saved");
  require_equal_replicas(model_);
  if (reporter_.leads()) {
    if (FoldersToHold* folders = hooks_.folders.get()) {
      folders->held = std::make_unique<RunFolders>(inputs_.config, folders->weight_bytes,
                                                   folders->command, inputs_.start);
      extras_.run_id = folders->held->run_id();
    }
    if (hooks_.on_begin) hooks_.on_begin(inputs_.start);
  }
  saver_.begin(extras_.run_id);
  report_start(inputs_, stepper_, saver_.made_by(), first.reading_seconds, reporter_);
  reporter_.begin();
  files_.barrier(context_);
  context_.ledger().reset_peaks();
}

bool TrainingRun::stop_of_any() {
  // Disks may be slow, so ranks first pass a barrier without time-out.
  const std::int64_t stop = hooks_.stop != nullptr && hooks_.stop->load() ? 1 : 0;
  const Tensor stops =
      context_.from_host<std::int64_t>({1}, std::span(&stop, 1), Category::workspace);
  files_.barrier(context_);
  world_.all_reduce(context_, stops);
  return context_.to_host<std::int64_t>(stops).front() != 0;
}

void TrainingRun::train() {
  for (std::int64_t k = inputs_.begin.iteration; k < inputs_.config.training.train_iters; ++k) {
    if (!iteration(k)) break;
  }
}

bool TrainingRun::is_drawn(std::int64_t k) const {
  const LoggingConfig& logging = inputs_.config.logging;
  if (!logging.trace || logging.trace_at.empty()) {
    const std::int64_t second = inputs_.begin.iteration + 1;
    return logging.trace && k == std::min(second, inputs_.config.training.train_iters - 1);
  }
  return std::ranges::find(logging.trace_at, k + 1) != logging.trace_at.end();
}

bool TrainingRun::iteration(std::int64_t k) {
  const Config& config = inputs_.config;
  const auto& dumps = config.logging.dump_gradients_at;
  const bool dump = std::find(dumps.begin(), dumps.end(), k + 1) != dumps.end();
  const std::vector<HostMicroBatch> micro_batches =
      data_.training(k, stepper_.look_ahead(), stepper_.look_ahead(1));
  const std::int64_t own = data_.micro_batches(k);
  if (own != stepper_.schedule().microbatches)
    stepper_.set_lists(inputs_.begin.ramp_lists->of(own));
  const std::int64_t interval = config.training.eval_interval;
  const bool evaluates =
      k + 1 == config.training.train_iters || (interval > 0 && (k + 1) % interval == 0);
  const bool saves = saver_.due(k + 1);
  const bool grows = data_.micro_batches(k + 1) != own;
  monitor_.begin(is_drawn(k));
  stepper_.keep_gradients(dump);
  const double rate = learning_rate(config.scheduler, config.optimizer.params.lr, k);
  const ClockReading begin = read_clock();
  Advance steps = stepper_.advance(micro_batches, {.learning_rate = rate,
                                                   .stop = hooks_.stop,
                                                   .save = saver_.touched(),
                                                   .close = evaluates || saves || grows});
  const double seconds = static_cast<double>(read_clock().wall_ns - begin.wall_ns) * 1e-9;
  const bool continues = !steps.previous || report(last_, *steps.previous, false);
  if (!steps.ran) return false;
  if (!continues && !steps.current) steps.current = stepper_.wait_for_result();
  if (!failure_.empty()) return false;

  saver_.iterated(seconds);
  saver_.report_ended();
  last_ = {k, rate, seconds, stepper_.weight_version()};
  progress_.iterations = k + 1;
  progress_.validation_loss.reset();
  if (dump) dump_gradients(k);
  monitor_.end();
  if (!steps.current) return true;
  if (!report(last_, *steps.current, evaluates)) return false;
  if (saver_.due(progress_.iterations)) saver_.save(progress_);
  return true;
}

bool TrainingRun::report(const CompletedIteration& iteration, const StepResult& step,
                         bool evaluates) {
  if (step.applied) {
    progress_.skipped = 0;
  } else {
    report_skipped(iteration.k, step);
  }
  if (step.stop) stopped_ = true;
  if (step.save) saver_.ask();
  const StepFigures figures = monitor_.collect();
  std::vector<std::pair<std::string, double>> validation_loss;
  if (evaluates && !stopped_ && failure_.empty()) validation_loss = validate();
  if (!validation_loss.empty()) progress_.validation_loss = validation_loss.front().second;
  CompletedIteration completed = iteration;
  completed.save_pause_ms = saver_.take_pause();
  completed.failed_saves = saver_.failures();
  reporter_.iteration(completed, step, figures, validation_loss, is_drawn(iteration.k));
  return !stopped_ && failure_.empty();
}

std::vector<std::pair<std::string, double>> TrainingRun::validate() {
  const std::int64_t batches = inputs_.config.training.eval_iters;
  std::vector<std::pair<std::string, double>> losses;
  for (std::size_t set = 0; set < data_.validation_sets(); ++set) {
    double total = 0, weights = 0;
    for (std::int64_t i = 0; i < batches; ++i) {
      const std::vector<HostMicroBatch> batch = data_.validation(set, i);
      // A batch's share of the tokens that count; 1 where all do.
      const double weight = counted_tokens(batch, model_.batch_tokens()) / model_.batch_tokens();
      const auto loss = evaluator_.mean_loss(batch, hooks_.stop);
      if (!loss) {
        stopped_ = true;
        return {};
      }
      if (weight > 0) total += weight * *loss;
      weights += weight;
    }
    losses.emplace_back(data_.validation_name(set), total / weights);
  }
  return losses;
}

void TrainingRun::report_skipped(std::int64_t k, const StepResult& step) {
  const std::int64_t first = inputs_.begin.batches.first_sample(k);
  const std::int64_t last = inputs_.begin.batches.first_sample(k + 1) - 1;
  const std::string what =
      step.empty
          ? fmt::format("iteration {}: no label of samples {} to {} counts", k + 1, first, last)
          : fmt::format("iteration {}: loss {}, gradient norm {}: not finite; samples {} to {}",
                        k + 1, std::abs(step.loss), step.grad_norm, first, last);
  if (stepper_.updates_unchecked()) {
    failure_ = what + "; " + stepper_.schedule().kind + " has updated the weights meanwhile";
    return;
  }
  if (step.only_overflowed) {
    reporter_.message(what + fmt::format("; step skipped, at loss scale {}", step.loss_scale));
    return;
  }
  if (!step.empty && inputs_.config.training.on_non_finite == "stop") {
    failure_ = what +
               "; no weight was changed by this iteration "
               "(training.on_non_finite: \"skip\" skips such a step and continues)";
    return;
  }
  if (++progress_.skipped >= inputs_.config.training.max_skipped_steps) {
    failure_ =
        what + fmt::format("; {} in a row skipped, as many as training.max_skipped_steps allows",
                           counted(progress_.skipped, "step"));
    return;
  }
  reporter_.message(
      what + (step.rolled_back ? "; step skipped: its update was rolled back" : "; step skipped"));
}

void TrainingRun::dump_gradients(std::int64_t k) {
  const std::string path =
      fmt::format("{}/gradients-{}.safetensors", inputs_.config.logging.dir, k + 1);
  const std::string failure = save_gradients(stepper_, files_, path);
  if (failure.empty()) {
    reporter_.wrote(path);
  } else {
    reporter_.failed("gradients", failure);
  }
}

void TrainingRun::save() {
  const std::string& directory = inputs_.config.checkpoint.save;
  if (directory.empty()) return;
  if (stopped_) reporter_.message("stopping, saving to " + directory);
  if (!weights_are_finite(model_)) {
    failure_ = "the weights are not finite: they are not saved, " + directory + " is unchanged";
    return;
  }
  const bool saves = stopped_ || saver_.active();
  const bool failed = saves && !saver_.save_last(progress_);
  save_final_weights(stepper_, files_, directory, extras_, hooks_, reporter_);
  if (failed) {
    failure_ = "the last checkpoint could not be saved";
  } else if (stopped_) {
    const CheckpointConfig& asked = inputs_.config.checkpoint;
    const bool can_resume = asked.resume != "never" && !is_iteration(asked.load);
    reporter_.message(fmt::format("saved after iteration {}{}", progress_.iterations,
                                  can_resume ? "; the same command resumes from there" : ""));
  }
}

}  // namespace trident
