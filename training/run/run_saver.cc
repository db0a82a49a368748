#include "training/run/run_saver.h"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <utility>
#include <variant>

#include "core/axes.h"
#include "core/clock.h"
#include "core/error.h"
#include "training/engine/finite_weights.h"
#include "training/setup/from_config.h"

namespace trident {
namespace {

constexpr const char* kSaveNow = "save-now";

std::string in(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

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
      reporter_(reporter) {}

void RunSaver::begin(const std::string& run_id) {
  run_id_ = run_id;
  if (inputs_.start.own) saved_ = inputs_.first_iteration;
  if (!reporter_.leads() || config_.checkpoint.save.empty()) return;
  for (const FoundCheckpoint& one : find_checkpoints(config_.checkpoint.save)) {
    if (one.manifest) sequence_ = std::max(sequence_, one.manifest->sequence);
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
  manifest.numbers["skipped"] = progress.skipped;
  if (progress.validation_loss) manifest.numbers["validation_loss"] = *progress.validation_loss;
  const Architecture& architecture = stepper_.model().architecture();
  info.files = inputs_.extras.files;
  info.files["config.json"] =
      with_extras(architecture.hugging_face_config(config_), inputs_.extras);
  info.files["trident/config.json"] = config_to_json(config_);
  return info;
}

std::string RunSaver::write(const Progress& progress) {
  RankModel& model = stepper_.model();
  Context& context = model.context();
  if (!weights_are_finite(model)) return "the weights are not finite";
  State state = stepper_.state();
  std::map<std::string, std::string> metadata;
  if (model.stash() != nullptr) metadata["weight_version"] = std::to_string(model.stash()->live());
  const CheckpointConfig& asked = config_.checkpoint;
  SaveList list(model, state, static_cast<std::uint64_t>(asked.min_slice), metadata);
  const CheckpointPlace place{.files = inputs_.files,
                              .folder = in(asked.save, checkpoint_name(progress.iterations)),
                              .saving = saving_path(asked.save, progress.iterations),
                              .max_writers = asked.max_writers,
                              .min_slice = static_cast<std::uint64_t>(asked.min_slice),
                              .before = hooks_.still_held};
  return write_checkpoint(context, files_, list, place, info(progress, state),
                          [&] { return list.next(context); });
}

bool RunSaver::save(const Progress& progress) {
  if (progress.iterations == saved_) return true;
  const ClockReading begin = read_clock();
  const std::string failure = write(progress);
  if (failure.empty()) {
    saved_ = progress.iterations;
    ++sequence_;
    if (reporter_.leads()) conclude(progress.iterations);
  } else {
    ++failures_;
    reporter_.message(
        fmt::format("CHECKPOINT FAILED after iteration {}: {}; {}", progress.iterations, failure,
                    saved_ < 0 ? "there is no earlier one"
                               : fmt::format("the one of iteration {} stays", saved_)));
  }
  pause_ += static_cast<double>(read_clock().wall_ns - begin.wall_ns) * 1e-6;
  return failure.empty();
}

void RunSaver::conclude(std::int64_t iterations) {
  const std::string& save = config_.checkpoint.save;
  const FileWork working = files_.file_work();
  try {
    inputs_.files->replace(in(save, latest_name), checkpoint_name(iterations) + "\n");
    inputs_.files->remove(in(save, kSaveNow));
    const CheckpointConfig& asked = config_.checkpoint;
    const Retention rules{asked.save_total_limit, asked.save_every_keep, asked.keep_best};
    if (rules.limit == 0) return;
    for (const std::int64_t gone : superfluous(find_checkpoints(save), rules)) {
      remove_checkpoint(*inputs_.files, save, gone);
    }
  } catch (const std::exception& error) {
    reporter_.message(std::string("warning: ") + error.what());
  }
}

}  // namespace trident
