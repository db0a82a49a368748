#include "run/loop/run_reporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/units.h"
#include "engine/setup/from_config.h"
#include "engine/setup/model_costs.h"
#include "planner/plan/plan.h"

namespace trident {
namespace {

// Rounded to milliseconds.
double seconds_since_1970() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
  return static_cast<double>(ms) * 1e-3;
}

// Leaves out statistics with several values a layer, but every few iterations: a line has
// `most_values` of them on average. `last`: the run ends with this iteration.
void leave_out_lists(IterationMetrics& metrics, bool last) {
  constexpr std::int64_t most_values = 256;
  std::int64_t values = 0;
  const auto is_list = [](const auto& one) {
    return std::ranges::any_of(one.second, [](const auto& layer) { return layer.size() > 1; });
  };
  for (const auto& one : metrics.statistics.statistics) {
    for (const auto& layer : one.second) values += is_list(one) ? std::ssize(layer) : 0;
  }
  const std::int64_t every = std::max<std::int64_t>(1, values / most_values);
  if (!last && metrics.iteration % every != 0) {
    std::erase_if(metrics.statistics.statistics, is_list);
  }
}

}  // namespace

RunReporter::RunReporter(const TrainingInputs& inputs, const ProcessGroup& world,
                         const TrainerHooks& hooks)
    : inputs_(inputs),
      config_(inputs.config),
      hooks_(hooks),
      world_(world),
      flops_(flops_per_step(config_, *inputs.architecture)) {
  summary_.rate = hooks.facts.rate;
}

void RunReporter::message(const std::string& text) const {
  if (!leads() || !hooks_.on_message) return;
  const FileWork printing = world_.file_work();
  hooks_.on_message(text);
}

void RunReporter::inform(const std::string& text) const {
  if (!hooks_.quiet || text.starts_with("warning: ")) message(text);
}

void RunReporter::begin() {
  if (!leads()) return;
  std::optional<std::int64_t> after;
  if (inputs_.start.own || inputs_.start.again) after = inputs_.begin.iteration;
  if (inputs_.start.own) {
    const std::string& dir = config_.logging.dir;
    if (const std::int64_t gone = MetricsFile::require_resumable(dir, *after); gone > 0) {
      message(fmt::format("{}/{} lacks {} of the iterations up to {}, which the checkpoint has",
                          dir, MetricsFile::kName, gone, *after));
    }
  }
  // A resumed run keeps the higher rate, wherever it was measured.
  if (after) {
    try {
      for (const auto& [kind, rate] : RunFiles::about(config_.logging.dir).best_rates) {
        if (summary_.rate.machines.contains(kind)) raise(summary_.rate.best, kind, rate);
      }
    } catch (const std::exception&) {  // opening the log files reports the problem
    }
  }
  const Plan plan = hooks_.facts.plan ? *hooks_.facts.plan
                                      : make_plan(config_, *inputs_.architecture, inputs_.schedule);
  std::vector<std::pair<std::string, std::string>> facts = hooks_.facts.start;
  facts.emplace_back("layout", titles_of(config_.parallel.axes()));
  if (!hooks_.facts.rate.busy.empty()) facts.emplace_back("busy", hooks_.facts.rate.busy);
  RunAbout about{.starts = {{.time = seconds_since_1970(),
                             .after = after.value_or(0),
                             .facts = std::move(facts),
                             .machines = hooks_.facts.rate.machines}},
                 .parameters = plan.parameters,
                 .predicted_memory = largest_rank(plan),
                 .best_rates = summary_.rate.best};
  log_ = std::make_unique<LogWriter>(config_, inputs_.written, after, std::move(about));
}

IterationMetrics RunReporter::metrics_of(const CompletedIteration& iteration,
                                         const StepResult& step, const StepFigures& figures) {
  const std::int64_t batch = inputs_.begin.batches.of(iteration.k);
  const std::int64_t length = config_.data.sequence_length;
  const auto tokens = static_cast<double>(batch * length);
  const double part =
      static_cast<double>(batch) / static_cast<double>(inputs_.begin.batches.largest());
  IterationMetrics metrics;
  metrics.iteration = iteration.k + 1;
  metrics.loss = step.loss;
  metrics.grad_norm = step.grad_norm;
  metrics.learning_rate = iteration.learning_rate;
  metrics.consumed_tokens =
      inputs_.begin.tokens +
      (inputs_.begin.batches.first_sample(iteration.k + 1) - inputs_.begin.samples) * length;
  metrics.batch_size = batch;
  metrics.epoch = static_cast<double>(inputs_.begin.batches.first_sample(iteration.k + 1)) /
                  static_cast<double>(inputs_.datasets.train->samples_per_epoch());
  metrics.wall_time = seconds_since_1970();
  metrics.iteration_time_ms = iteration.seconds * 1e3;
  metrics.tokens_per_second = tokens / iteration.seconds;
  metrics.tflops = flops_ * part / iteration.seconds * 1e-12;
  // A step that is faster than the best known rate raises that rate, so MFU never exceeds 1. Where
  // attention leaves out other documents, a step has fewer FLOPs than are counted.
  if (!config_.data.reset_attention_mask) summary_.rate.reached(metrics.tflops * 1e12);
  const double rate = summary_.rate.total();
  metrics.mfu = rate > 0 ? std::min(1.0, metrics.tflops * 1e12 / rate) : 0;
  metrics.bubble_ratio = figures.bubble_ratio;
  metrics.bubble_ratio_wall = figures.bubble_ratio_wall;
  metrics.bubble_predicted = figures.bubble_predicted;
  metrics.rank_bubble_ratio = figures.rank_bubble_ratio;
  metrics.bytes_sent = figures.bytes_sent;
  metrics.peak_memory = figures.peak_memory;
  // The mean over the ranks, scaled to this iteration's time, which is rank 0's.
  double parts = 0;
  for (const auto& [name, ms] : figures.parts_ms) parts += ms;
  for (const auto& [name, ms] : figures.parts_ms) {
    metrics.parts_ms[name] = parts > 0 ? ms / parts * metrics.iteration_time_ms : 0;
  }
  metrics.replayed_ms = figures.replayed_ms;
  metrics.loss_scale = step.loss_scale;
  metrics.skipped = !step.applied;
  metrics.statistics = step.statistics;
  leave_out_lists(metrics, iteration.k + 1 == config_.training.train_iters);
  if (inputs_.schedule.asynchronous()) metrics.weight_version = iteration.weight_version;
  if (config_.data.masks_labels()) {
    metrics.counted_tokens = static_cast<std::int64_t>(step.tokens.counted);
  }
  if (config_.checkpoint.save_interval > 0 || config_.checkpoint.local.interval > 0) {
    metrics.save_pause_ms = iteration.save_pause_ms;
    metrics.failed_saves = iteration.failed_saves;
  }
  return metrics;
}

void RunReporter::iteration(const CompletedIteration& iteration, const StepResult& step,
                            const StepFigures& figures,
                            const std::vector<std::pair<std::string, double>>& validation_loss,
                            bool drawn) {
  if (!leads()) return;
  IterationMetrics metrics = metrics_of(iteration, step, figures);
  metrics.validation_loss = validation_loss;
  if (hooks_.on_iteration) {
    const FileWork printing = world_.file_work();  // a terminal may block
    hooks_.on_iteration(metrics);
  }
  const std::string idle = idle_experts_.next(step.statistics);
  if (!idle.empty()) message(idle);
  log_->write(metrics);
  metrics.statistics.statistics.clear();  // they may be large
  summary_.history.push_back(std::move(metrics));
  if (drawn) draw(iteration.k, figures);
  pass_messages_on();
}

void RunReporter::draw(std::int64_t k, const StepFigures& figures) {
  const std::string what =
      fmt::format("{}, iteration {}: ", schedule_name(config_.pipeline), k + 1);
  summary_.predicted = figures.predicted;
  summary_.predicted.title =
      fmt::format("{}predicted bubble {}, by the schedule and the mean times of F, B and W", what,
                  percent_text(figures.bubble_predicted));
  summary_.timeline = figures.timeline;
  summary_.timeline.title =
      fmt::format("{}measured bubble {} by CPU time, {} by the clock", what,
                  percent_text(figures.bubble_ratio), percent_text(figures.bubble_ratio_wall));
  const bool several = config_.logging.trace_at.size() > 1;
  log_->write_timeline(several ? k + 1 : 0, summary_.predicted, summary_.timeline);
}

void RunReporter::pass_messages_on() {
  for (const std::string& text : log_->take_messages()) message(text);
}

void RunReporter::wrote(const std::string& path) {
  if (leads()) summary_.written.push_back(path);
}

void RunReporter::sync_log() {
  if (leads()) log_->sync_metrics();
}

void RunReporter::failed(const std::string& what, const std::string& why) {
  if (leads()) log_->failed(what, why);
}

void RunReporter::end() {
  if (!leads()) return;
  if (hooks_.folders) hooks_.folders->held->require_held();
  log_->write_report(summary_.rate.best);
  const auto files = log_->finish();
  summary_.written.insert(summary_.written.begin(), files.begin(), files.end());
  pass_messages_on();
}

}  // namespace trident
