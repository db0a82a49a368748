#include "run/loop/run_saver.h"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/files/file.h"
#include "checkpoint/exchanged_texts.h"
#include "core/axes.h"
#include "core/clock.h"

namespace trident {
namespace {

constexpr const char* kSaveNow = "save-now";

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
  Waiting(RunSaver& saver, Kind& kind, bool inside = false)
      : work_(saver.files_.file_work()), saver_(saver), kind_(kind), inside_(inside) {}
  ~Waiting() {
    const double seconds = static_cast<double>(read_clock().wall_ns - begin_.wall_ns) * 1e-9;
    saver_.pause_ += seconds;
    kind_.costs.waited(seconds);
    if (inside_) saver_.pause_inside_ += seconds;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  FileWork work_;
  const ClockReading begin_ = read_clock();
  RunSaver& saver_;
  Kind& kind_;
  const bool inside_;
};

RunSaver::RunSaver(const TrainingInputs& inputs, const TrainerHooks& hooks, Stepper& stepper,
                   const Nodes& nodes, const ProcessGroup& files, RunReporter& reporter)
    : inputs_(inputs),
      config_(inputs.config),
      hooks_(hooks),
      stepper_(stepper),
      files_(files),
      reporter_(reporter),
      contents_(inputs, stepper),
      host_(make_cpu_device()) {
  const CheckpointConfig& asked = config_.checkpoint;
  durable_.interval = asked.save_interval;
  nodes_.interval = asked.local.interval;
  if (nodes_.interval > 0) {
    place_.files = inputs_.files;
    place_.role = node_role(nodes, files.rank(), asked.local.replicas);
  }
  // Staging buffers lie in host memory. Only the ledger of a CPU rank counts host memory.
  Context& context = stepper_.context();
  const bool own = context.device().kind() == DeviceKind::cpu;
  for (Kind* kind : {&durable_, &nodes_}) {
    kind->asynchronous = files.without_timeout(on_nodes(*kind) ? "saves on nodes" : "saves");
    kind->staging = std::make_unique<Staging>(own ? &context.ledger() : nullptr);
  }
  if (!asked.asynchronous) return;
  stepper_.before_update([this] {
    for (Kind* kind : {&durable_, &nodes_}) {
      if (!kind->job || kind->job->background->copied()) continue;
      const Waiting waiting(*this, *kind, true);
      kind->job->background->wait_until_copied();
    }
  });
}

void RunSaver::begin(const std::string& run_id) {
  if (inputs_.start.own) {
    const bool there = inputs_.start.checkpoints.front().on_nodes != nullptr;
    (there ? nodes_ : durable_).saved = inputs_.begin.iteration;
  }
  // Other ranks wait for rank 0 in the next call.
  if (reporter_.leads()) contents_.take_made_by(hooks_.facts);
  begun_ = prepare_saves(inputs_, files_, reporter_, run_id, active(), place_);
  sequence_ = begun_.sequence;
}

bool RunSaver::due(std::int64_t iterations) const {
  return asked_ || durable_.due(iterations) || nodes_.due(iterations);
}

bool RunSaver::touched() const {
  if (!reporter_.leads() || config_.checkpoint.save.empty()) return false;
  std::error_code ignored;
  const auto found =
      std::filesystem::symlink_status(in(config_.checkpoint.save, kSaveNow), ignored);
  return std::filesystem::exists(found) && !std::filesystem::is_directory(found);
}

bool RunSaver::active() const {
  return !config_.checkpoint.save.empty() &&
         (durable_.interval > 0 || nodes_.interval > 0 || durable_.saved >= 0);
}

std::unique_ptr<RunSaver::Job> RunSaver::job_of(Kind& kind, const CheckpointProgress& progress,
                                                bool asynchronous) {
  RankModel& model = stepper_.model();
  ++sequence_;
  reporter_.sync_log();
  if (touched() && !on_nodes(kind)) {
    try {
      inputs_.files->remove(in(config_.checkpoint.save, kSaveNow));
    } catch (const std::exception& error) {
      reporter_.message(std::string("warning: ") + error.what());
    }
  }
  State state = stepper_.state();
  std::map<std::string, std::string> metadata;
  if (model.stash() != nullptr) metadata["weight_version"] = std::to_string(model.stash()->live());
  const CheckpointConfig& asked = config_.checkpoint;
  const auto min_slice = static_cast<std::uint64_t>(asked.min_slice);
  const bool apart = asynchronous && asked.device_copies &&
                     kind.copies.make(stepper_.context(), state, model.shape().dtype, min_slice);
  auto job = std::make_unique<Job>(
      Job{.iterations = progress.iterations,
          .on_nodes = on_nodes(kind),
          .apart = apart,
          .list = SaveList(model, state, min_slice, metadata,
                           on_nodes(kind) ? SaveList::Weights::slices : SaveList::Weights::full),
          .info = contents_.of(progress, state, begun_, sequence_, on_nodes(kind)),
          .place = {.files = inputs_.files,
                    .folder = in(asked.save, checkpoint_name(progress.iterations)),
                    .saving = saving_path(asked.save, progress.iterations),
                    .max_writers = asked.max_writers,
                    .min_slice = min_slice}});
  job->place.before = [this, &job = *job] {
    if (!hooks_.folders || !hooks_.folders->held) return;
    if (const std::string what = hooks_.folders->held->hold_saves(); !what.empty())
      job.messages.push_back(what);
  };
  return job;
}

std::string RunSaver::write(Context& context, const ProcessGroup& group, Job& job,
                            const EachPortion& each) {
  const std::string failure =
      job.on_nodes ? write_on_nodes(context, group, job.list, place_, job.info, each)
                   : write_checkpoint(context, group, job.list, job.place, job.info, each);
  if (!failure.empty()) return failure;
  if (job.on_nodes && group.rank() == 0 && !std::exchange(recorded_on_nodes_, true)) {
    try {
      record_on_nodes(*inputs_.files, config_.checkpoint.save, begun_.run_id, begun_.start);
    } catch (const std::exception& error) {
      job.messages.push_back(std::string("warning: ") + error.what());
    }
  }
  if (job.on_nodes ? place_.role.leads : group.rank() == 0) conclude(job);
  if (job.on_nodes) {  // collect the messages of all nodes
    std::string lines;
    for (const std::string& message : job.messages) lines += message;
    lines = agreed_failure(context, group, lines);
    job.messages.clear();
    if (!lines.empty()) job.messages.push_back(lines);
  }
  return "";
}

void RunSaver::save(const CheckpointProgress& progress) {
  const bool durable = std::exchange(asked_, false) || durable_.due(progress.iterations);
  save(durable ? durable_ : nodes_, progress);
}

void RunSaver::save(Kind& kind, const CheckpointProgress& progress) {
  finish(kind);
  if (progress.iterations == kind.saved) return;
  if (config_.checkpoint.asynchronous) {
    begin_async(kind, progress);
  } else {
    save_now(kind, progress);
  }
}

bool RunSaver::save_now(Kind& kind, const CheckpointProgress& progress) {
  if (progress.iterations == kind.saved) return true;
  std::unique_ptr<Job> job;
  std::string failure;
  {
    const Waiting waiting(*this, kind);
    Context& context = stepper_.context();
    Context host(*host_, 1);
    job = job_of(kind, progress, false);
    failure = write(on_nodes(kind) ? host : context, files_, *job,
                    [&](const PortionSink& sink) { job->list.portions().each(context, sink); });
  }
  ended(kind, *job, failure);
  return failure.empty();
}

bool RunSaver::save_last(const CheckpointProgress& progress) {
  finish();
  if (!save_now(durable_, progress)) return false;
  report_best_intervals();
  if (nodes_.interval == 0) return true;
  std::string left;
  try {
    if (place_.role.leads) leave_node(place_);
    if (reporter_.leads()) {
      record_on_nodes(*inputs_.files, config_.checkpoint.save, begun_.run_id, "");
    }
  } catch (const std::exception& error) {
    left = error.what();
  }
  Context host(*host_, 1);
  left = agreed_failure(host, files_, left);
  if (!left.empty()) reporter_.message("warning: " + left);
  return true;
}

void RunSaver::begin_async(Kind& kind, const CheckpointProgress& progress) {
  const Waiting waiting(*this, kind);
  Context& context = stepper_.context();
  context.synchronize();
  std::unique_ptr<Job> begun = job_of(kind, progress, true);
  Job& job = *begun;
  if (job.apart) context.synchronize();
  const CheckpointConfig& asked = config_.checkpoint;
  const BackgroundLimits limits{.staging = job.apart ? 0 : asked.staging_limit,
                                .apart = job.apart,
                                .niceness = static_cast<int>(asked.niceness),
                                .io = io_priority_of(asked.io_priority)};
  job.background =
      std::make_unique<BackgroundSave>(context.device(), job.list, limits, *kind.staging,
                                       [this, &kind, &job](const EachPortion& each) {
                                         Context host(*host_, 1);
                                         return write(host, kind.asynchronous, job, each);
                                       });
  kind.job = std::move(begun);  // other functions treat kind.job as a running save
}

void RunSaver::iterated(double seconds) {
  const double own = seconds - std::exchange(pause_inside_, 0.0);
  const bool durable = durable_.job != nullptr, nodes = nodes_.job != nullptr;
  if (durable || !nodes) durable_.costs.iteration(own, durable);
  if (!durable) nodes_.costs.iteration(own, nodes);
}

void RunSaver::report_ended() {
  for (Kind* kind : {&durable_, &nodes_}) {
    if (kind->job && kind->job->background->done()) finish(*kind);
  }
}

void RunSaver::finish() {
  finish(nodes_);
  finish(durable_);
}

void RunSaver::finish(Kind& kind) {
  if (!kind.job) return;
  {
    const std::unique_ptr<Job> job = std::move(kind.job);
    std::string failure;
    {
      const Waiting waiting(*this, kind);
      failure = job->background->result();
    }
    ended(kind, *job, failure);
  }
}

void RunSaver::finish_alone() noexcept {
  for (Kind* kind : {&nodes_, &durable_}) {
    if (!kind->job) continue;
    try {
      const Waiting waiting(*this, *kind);
      kind->job->background->result();
    } catch (...) {
      // The error with which this rank ends is more important.
    }
    kind->job.reset();
  }
}

void RunSaver::ended(Kind& kind, const Job& job, const std::string& failure) {
  for (const std::string& message : job.messages) reporter_.message(message);
  const std::int64_t before = kind.saved;
  kind.costs.ended();
  if (failure.empty()) {
    kind.saved = job.iterations;
    if (kind.costs.saves() == 1) report_best_intervals();
    return;
  }
  ++failures_;
  std::error_code ignored;
  const bool stays =
      before >= 0 &&
      (job.on_nodes ||
       std::filesystem::exists(
           in(in(config_.checkpoint.save, checkpoint_name(before)), manifest_name), ignored));
  reporter_.message(fmt::format(
      "CHECKPOINT{} FAILED after iteration {}: {}; {}", job.on_nodes ? " ON THE NODES" : "",
      job.iterations, failure,
      stays ? fmt::format("the one of iteration {} stays", before) : "there is no earlier one"));
}

void RunSaver::report_best_intervals() {
  const CheckpointConfig& asked = config_.checkpoint;
  const std::string text =
      best_intervals_text(durable_.costs, nodes_.interval > 0 ? &nodes_.costs : nullptr,
                          asked.mtbf_hours, asked.local.mtbf_hours);
  if (!text.empty()) reporter_.message(text);
}

void RunSaver::conclude(Job& job) const {
  const std::string& save = config_.checkpoint.save;
  try {
    if (job.on_nodes) return keep_on_node(place_, job.iterations);
    inputs_.files->replace(in(save, latest_name), checkpoint_name(job.iterations) + "\n");
    const CheckpointConfig& asked = config_.checkpoint;
    const Retention retention{asked.save_total_limit, asked.save_every_keep, asked.keep_best};
    if (retention.limit == 0) return;
    for (const std::int64_t gone : iterations_to_remove(find_checkpoints(save), retention)) {
      remove_checkpoint(*inputs_.files, save, gone);
    }
  } catch (const std::exception& error) {
    job.messages.push_back(std::string("warning: ") + error.what());
  }
}

}  // namespace trident
