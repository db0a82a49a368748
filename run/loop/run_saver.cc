#include "run/loop/run_saver.h"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/files/file.h"
#include "core/axes.h"
#include "core/clock.h"

namespace trident {
namespace {

constexpr const char* save_now_name = "save-now";

std::string in(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

IoPriority io_priority_of(const std::string& name) {
  if (name == "idle") return IoPriority::idle;
  return name == "low" ? IoPriority::low : IoPriority::usual;
}

}  // namespace

// Lives while training waits for a save. Counts that time; other ranks wait without time-out.
class RunSaver::Waiting {
 public:
  // `inside`: the wait is part of the seconds that iterated() receives.
  Waiting(RunSaver& saver, Series& series, bool inside = false)
      : work_(saver.files_.file_work()), saver_(saver), series_(series), inside_(inside) {}
  ~Waiting() {
    const double seconds = static_cast<double>(read_clock().wall_ns - begin_.wall_ns) * 1e-9;
    saver_.pause_ += seconds;
    series_.costs.waited(seconds);
    if (inside_) saver_.pause_inside_ += seconds;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  FileWork work_;
  const ClockReading begin_ = read_clock();
  RunSaver& saver_;
  Series& series_;
  const bool inside_;
};

RunSaver::RunSaver(const TrainingInputs& inputs, const TrainerHooks& hooks, Stepper& stepper,
                   const Nodes& nodes, const ProcessGroup& files, RunReporter& reporter)
    : inputs_(inputs),
      config_(inputs.config.checkpoint),
      stepper_(stepper),
      files_(files),
      reporter_(reporter),
      writer_(inputs, hooks, stepper, nodes, files.rank()) {
  durable_.interval = config_.save_interval;
  nodes_.interval = config_.local.interval;
  // Staging buffers lie in host memory. Only the ledger of a CPU rank counts host memory.
  Context& context = stepper_.context();
  const bool own = context.device().kind() == DeviceKind::cpu;
  for (Series* series : {&durable_, &nodes_}) {
    series->asynchronous = files.without_timeout(on_nodes(*series) ? "saves on nodes" : "saves");
    series->staging = std::make_unique<Staging>(own ? &context.ledger() : nullptr);
  }
  if (!config_.asynchronous) return;
  stepper_.before_update([this] {
    for (Series* series : {&durable_, &nodes_}) {
      if (!series->job || series->job->background->copied()) continue;
      const Waiting waiting(*this, *series, true);
      series->job->background->wait_until_copied();
    }
  });
}

void RunSaver::begin(const std::string& run_id) {
  if (inputs_.start.own) {
    const bool there = inputs_.start.checkpoints.front().on_nodes != nullptr;
    (there ? nodes_ : durable_).saved = inputs_.begin.iteration;
  }
  writer_.begin(files_, reporter_, run_id, active());
}

bool RunSaver::due(std::int64_t iterations) const {
  return asked_ || durable_.due(iterations) || nodes_.due(iterations);
}

bool RunSaver::touched() const {
  if (!reporter_.leads() || config_.save.empty()) return false;
  std::error_code ignored;
  const auto found = std::filesystem::symlink_status(in(config_.save, save_now_name), ignored);
  return std::filesystem::exists(found) && !std::filesystem::is_directory(found);
}

bool RunSaver::active() const {
  return !config_.save.empty() &&
         (durable_.interval > 0 || nodes_.interval > 0 || durable_.saved >= 0);
}

CheckpointSave RunSaver::next(const Series& series, const CheckpointProgress& progress,
                              const State& state) {
  reporter_.sync_log();
  if (touched() && !on_nodes(series)) {
    try {
      inputs_.files->remove(in(config_.save, save_now_name));
    } catch (const std::exception& error) {
      reporter_.message(std::string("warning: ") + error.what());
    }
  }
  return writer_.next(progress, state, on_nodes(series));
}

void RunSaver::save(const CheckpointProgress& progress) {
  const bool durable = std::exchange(asked_, false) || durable_.due(progress.iterations);
  save(durable ? durable_ : nodes_, progress);
}

void RunSaver::save(Series& series, const CheckpointProgress& progress) {
  finish(series);
  if (progress.iterations == series.saved) return;
  if (config_.asynchronous) {
    begin_async(series, progress);
  } else {
    save_now(series, progress);
  }
}

bool RunSaver::save_now(Series& series, const CheckpointProgress& progress) {
  if (progress.iterations == series.saved) return true;
  std::unique_ptr<CheckpointSave> save;
  std::string failure;
  {
    const Waiting waiting(*this, series);
    Context& context = stepper_.context();
    Context host = writer_.host_context();
    save = std::make_unique<CheckpointSave>(next(series, progress, stepper_.state()));
    failure =
        writer_.write(on_nodes(series) ? host : context, files_, *save,
                      [&](const PortionSink& sink) { save->list.portions().each(context, sink); });
  }
  ended(series, *save, failure);
  return failure.empty();
}

bool RunSaver::save_last(const CheckpointProgress& progress) {
  finish();
  if (!save_now(durable_, progress)) return false;
  report_best_intervals();
  if (nodes_.interval == 0) return true;
  const std::string left = writer_.leave_nodes(files_);
  if (!left.empty()) reporter_.message("warning: " + left);
  return true;
}

void RunSaver::begin_async(Series& series, const CheckpointProgress& progress) {
  const Waiting waiting(*this, series);
  Context& context = stepper_.context();
  context.synchronize();
  State state = stepper_.state();
  const bool apart =
      config_.device_copies && series.copies.make(context, state, stepper_.model().shape().dtype,
                                                  static_cast<std::uint64_t>(config_.min_slice));
  auto begun = std::make_unique<Job>(Job{.save = next(series, progress, state)});
  if (apart) context.synchronize();
  const BackgroundLimits limits{.staging = apart ? 0 : config_.staging_limit,
                                .apart = apart,
                                .niceness = static_cast<int>(config_.niceness),
                                .io = io_priority_of(config_.io_priority)};
  CheckpointSave& save = begun->save;
  begun->background = std::make_unique<BackgroundSave>(
      context.device(), save.list, limits, *series.staging,
      [this, &series, &save](const auto& each) {
        Context host = writer_.host_context();
        return writer_.write(host, series.asynchronous, save, each);
      });
  series.job = std::move(begun);  // other functions treat series.job as a running save
}

void RunSaver::iterated(double seconds) {
  const double own = seconds - std::exchange(pause_inside_, 0.0);
  const bool durable = durable_.job != nullptr, nodes = nodes_.job != nullptr;
  if (durable || !nodes) durable_.costs.iteration(own, durable);
  if (!durable) nodes_.costs.iteration(own, nodes);
}

void RunSaver::report_ended() {
  for (Series* series : {&durable_, &nodes_}) {
    if (series->job && series->job->background->done()) finish(*series);
  }
}

void RunSaver::finish() {
  finish(nodes_);
  finish(durable_);
}

void RunSaver::finish(Series& series) {
  if (!series.job) return;
  {
    const std::unique_ptr<Job> job = std::move(series.job);
    std::string failure;
    {
      const Waiting waiting(*this, series);
      failure = job->background->result();
    }
    ended(series, job->save, failure);
  }
}

void RunSaver::finish_alone() noexcept {
  for (Series* series : {&nodes_, &durable_}) {
    if (!series->job) continue;
    try {
      const Waiting waiting(*this, *series);
      series->job->background->result();
    } catch (...) {
      // The error with which this rank ends is more important.
    }
    series->job.reset();
  }
}

void RunSaver::ended(Series& series, const CheckpointSave& save, const std::string& failure) {
  for (const std::string& message : save.messages) reporter_.message(message);
  const std::int64_t before = series.saved;
  series.costs.ended();
  if (failure.empty()) {
    series.saved = save.iterations;
    if (series.costs.saves() == 1) report_best_intervals();
    return;
  }
  ++failures_;
  std::error_code ignored;
  const bool stays =
      before >= 0 &&
      (save.on_nodes || std::filesystem::exists(
                            in(in(config_.save, checkpoint_name(before)), manifest_name), ignored));
  reporter_.message(fmt::format(
      "CHECKPOINT{} FAILED after iteration {}: {}; {}", save.on_nodes ? " ON THE NODES" : "",
      save.iterations, failure,
      stays ? fmt::format("the one of iteration {} stays", before) : "there is no earlier one"));
}

void RunSaver::report_best_intervals() {
  const std::string text =
      best_intervals_text(durable_.costs, nodes_.interval > 0 ? &nodes_.costs : nullptr,
                          config_.mtbf_hours, config_.local.mtbf_hours);
  if (!text.empty()) reporter_.message(text);
}

}  // namespace trident
