#include "training/run/run_saver.h"

#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <filesystem>
#include <utility>
#include <variant>

#include "core/axes.h"
#include "core/clock.h"
#include "core/error.h"
#include "training/run/in_flight.h"
#include "training/setup/from_config.h"

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

// While training waits for a disk: adds to `pause`, and others wait as long as it takes.
class Waiting {
 public:
  Waiting(const ProcessGroup& files, double& pause) : work_(files.file_work()), pause_(pause) {}
  ~Waiting() { pause_ += static_cast<double>(read_clock().wall_ns - begin_.wall_ns) * 1e-6; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  FileWork work_;
  const ClockReading begin_ = read_clock();
  double& pause_;
};

}  // namespace

std::map<std::string, std::string> made_by(const TrainingInputs& inputs) {
  const Config& config = inputs.config;
  std::map<std::string, std::string> made = inputs.made_by;
  made["layout"] = text_of(config.parallel.axes());
  made["schedule"] = schedule_name(config);
  made["threads_per_rank"] = std::to_string(config.runtime.threads_per_rank);
  return made;
}

RunSaver::RunSaver(const TrainingInputs& inputs, const TrainerHooks& hooks, Stepper& stepper,
                   const ProcessGroup& files, RunReporter& reporter)
    : inputs_(inputs),
      config_(inputs.config),
      hooks_(hooks),
      stepper_(stepper),
      files_(files),
      reporter_(reporter) {
  if (!config_.checkpoint.asynchronous) return;
  beside_ = files.patient("saves");
  host_ = make_cpu_device();
  host_context_ = std::make_unique<Context>(*host_, 1);
  // Copies lie in the host's memory, which is a rank's own on a CPU alone.
  Context& context = stepper_.context();
  const bool own = context.device().kind() == DeviceKind::cpu;
  staging_ = std::make_unique<Staging>(own ? &context.ledger() : nullptr);
  stepper_.before_update([this] {
    if (!job_ || job_->background->copied()) return;
    const Waiting waiting(files_, pause_);
    job_->background->wait_until_copied();
  });
}

void RunSaver::begin(const std::string& run_id) {
  run_id_ = run_id;
  if (inputs_.start.own) saved_ = inputs_.first_iteration;
  if (!reporter_.leads() || config_.checkpoint.save.empty()) return;
  const std::vector<FoundCheckpoint> found = find_checkpoints(config_.checkpoint.save);
  for (const FoundCheckpoint& one : found) {
    if (one.manifest) sequence_ = std::max(sequence_, one.manifest->sequence);
  }
  if (inputs_.start.own) set_aside_later(found);
}

void RunSaver::set_aside_later(const std::vector<FoundCheckpoint>& found) {
  const std::int64_t first = inputs_.start.checkpoints.front().manifest->sequence;
  std::vector<FoundCheckpoint> later = newest_first(found);
  std::erase_if(later, [&](const FoundCheckpoint& one) { return one.manifest->sequence <= first; });
  for (const FoundCheckpoint& one : found) {
    if (!one.manifest) later.push_back(one);
  }
  if (later.empty()) return;
  const std::string& save = config_.checkpoint.save;
  try {
    inputs_.files->replace(in(save, latest_name), checkpoint_name(inputs_.first_iteration) + "\n");
  } catch (const std::exception& error) {  // a full disk is no reason to train on from elsewhere
    reporter_.message(std::string("warning: ") + error.what());
  }
  // The newest first: whoever dies on the way has gone back by a part.
  for (const FoundCheckpoint& one : later) {
    const std::string aside = set_aside(*inputs_.files, save, one.iteration);
    reporter_.message(fmt::format("{} is {}: set aside as {}", checkpoint_name(one.iteration),
                                  one.manifest ? "later than where this run goes on" : "damaged",
                                  aside));
  }
}

bool RunSaver::due(std::int64_t iterations) const {
  const std::int64_t interval = config_.checkpoint.save_interval;
  return interval > 0 && iterations % interval == 0;
}

bool RunSaver::asked() const {
  if (!reporter_.leads() || config_.checkpoint.save.empty()) return false;
  std::error_code ignored;
  return std::filesystem::exists(in(config_.checkpoint.save, kSaveNow), ignored);
}

bool RunSaver::active() const {
  return !config_.checkpoint.save.empty() && (config_.checkpoint.save_interval > 0 || saved_ >= 0);
}

CheckpointInfo RunSaver::info(const Progress& progress, State& state) const {
  CheckpointInfo info;
  Manifest& manifest = info.manifest;
  manifest.iteration = progress.iterations;
  manifest.sequence = sequence_ + 1;
  manifest.run_id = run_id_;
  manifest.made_by = made_by(inputs_);
  manifest.samples = inputs_.consumed_samples + (progress.iterations - inputs_.first_iteration) *
                                                    config_.batch.global_batch_size;
  manifest.tokens = inputs_.consumed_tokens +
                    (manifest.samples - inputs_.consumed_samples) * config_.data.sequence_length;
  for (const StateNumber& number : state.numbers) {
    std::visit([&](const auto* value) { manifest.numbers[number.name] = *value; }, number.value);
  }
  if (const WeightStash* stash = stepper_.model().stash(); stash != nullptr) {
    const std::int64_t iterations =
        inputs_.lists->begun.iterations + progress.iterations - inputs_.first_iteration;
    list_in_flight(config_, inputs_.schedule, progress.iterations, {iterations, stash->live()},
                   manifest);
  }
  manifest.numbers["skipped"] = progress.skipped;
  if (progress.validation_loss && std::isfinite(*progress.validation_loss)) {
    manifest.numbers["validation_loss"] = *progress.validation_loss;
  }
  const Architecture& architecture = stepper_.model().architecture();
  info.files = inputs_.extras.files;
  info.files["config.json"] =
      with_extras(architecture.hugging_face_config(config_), inputs_.extras);
  info.files["trident/config.json"] = config_to_json(config_);
  return info;
}

std::unique_ptr<RunSaver::Job> RunSaver::job_of(const Progress& progress) {
  RankModel& model = stepper_.model();
  if (reporter_.leads()) {
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
  auto job = std::make_unique<Job>(
      Job{.iterations = progress.iterations,
          .list = SaveList(model, state, min_slice, metadata),
          .info = info(progress, state),
          .place = {.files = inputs_.files,
                    .folder = in(asked.save, checkpoint_name(progress.iterations)),
                    .saving = saving_path(asked.save, progress.iterations),
                    .max_writers = asked.max_writers,
                    .min_slice = min_slice}});
  job->place.before = [this, &job = *job] {
    if (!hooks_.hold_saves) return;
    if (const std::string what = hooks_.hold_saves(); !what.empty()) job.messages.push_back(what);
  };
  return job;
}

std::string RunSaver::write(Context& context, const ProcessGroup& group, Job& job,
                            const EachPortion& each) {
  const std::string failure = write_checkpoint(context, group, job.list, job.place, job.info, each);
  if (failure.empty() && group.rank() == 0) conclude(job);
  return failure;
}

void RunSaver::save(const Progress& progress) {
  finish();
  if (progress.iterations == saved_) return;
  if (config_.checkpoint.asynchronous) {
    begin_beside(progress);
  } else {
    save_last(progress);
  }
}

bool RunSaver::save_last(const Progress& progress) {
  finish();
  if (progress.iterations == saved_) return true;
  const Waiting waiting(files_, pause_);
  Context& context = stepper_.context();
  const auto job = job_of(progress);
  const std::string failure = write(context, files_, *job, [&](const PortionSink& sink) {
    job->list.portions().each(context, sink);
  });
  ended(*job, failure);
  return failure.empty();
}

void RunSaver::begin_beside(const Progress& progress) {
  const Waiting waiting(files_, pause_);
  Context& context = stepper_.context();
  context.synchronize();
  job_ = job_of(progress);
  Job& job = *job_;
  const CheckpointConfig& asked = config_.checkpoint;
  const BackgroundLimits limits{.staging = asked.staging_limit,
                                .niceness = static_cast<int>(asked.niceness),
                                .io = io_priority_of(asked.io_priority)};
  job.background = std::make_unique<BackgroundSave>(
      context.device(), job.list, limits, *staging_,
      [this, &job](const EachPortion& each) { return write(*host_context_, beside_, job, each); });
}

void RunSaver::look() {
  if (job_ && job_->background->done()) finish();
}

void RunSaver::finish() {
  if (!job_) return;
  const Waiting waiting(files_, pause_);
  const std::unique_ptr<Job> job = std::move(job_);
  ended(*job, job->background->result());
}

void RunSaver::finish_alone() noexcept {
  if (!job_) return;
  try {
    const Waiting waiting(files_, pause_);
    job_->background->result();
  } catch (...) {
    // The error that this rank has to tell says more.
  }
  job_.reset();
}

void RunSaver::ended(const Job& job, const std::string& failure) {
  for (const std::string& message : job.messages) reporter_.message(message);
  if (failure.empty()) {
    saved_ = job.iterations;
    ++sequence_;
    return;
  }
  ++failures_;
  reporter_.message(fmt::format("CHECKPOINT FAILED after iteration {}: {}; {}", job.iterations,
                                failure,
                                saved_ < 0 ? "there is no earlier one"
                                           : fmt::format("the one of iteration {} stays", saved_)));
}

void RunSaver::conclude(Job& job) const {
  const std::string& save = config_.checkpoint.save;
  try {
    inputs_.files->replace(in(save, latest_name), checkpoint_name(job.iterations) + "\n");
    const CheckpointConfig& asked = config_.checkpoint;
    const Retention rules{asked.save_total_limit, asked.save_every_keep, asked.keep_best};
    if (rules.limit == 0) return;
    for (const std::int64_t gone : superfluous(find_checkpoints(save), rules)) {
      remove_checkpoint(*inputs_.files, save, gone);
    }
  } catch (const std::exception& error) {
    job.messages.push_back(std::string("warning: ") + error.what());
  }
}

}  // namespace trident
