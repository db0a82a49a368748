#include "run/loop/checkpoint_contents.h"

#include <fmt/format.h>

#include <cmath>
#include <variant>
#include <vector>

#include "engine/setup/from_config.h"
#include "run/loop/in_flight.h"
#include "run/processes/agreement.h"

namespace trident {

std::string consumed_name(std::size_t source) {
  return fmt::format("data.train.{}.samples", source);
}

CheckpointContents::CheckpointContents(const TrainingInputs& inputs, Stepper& stepper)
    : inputs_(inputs), stepper_(stepper) {
  if (inputs.datasets.train != nullptr) sources_ = inputs.datasets.train->interleave();
}

void CheckpointContents::take_made_by(const ReportFacts& facts) {
  const Config& config = inputs_.config;
  made_by_ = facts.made_by;
  made_by_["layout"] = text_of(config.parallel.axes());
  made_by_["schedule"] = schedule_name(config.pipeline);
  made_by_["threads_per_rank"] = std::to_string(config.runtime.threads_per_rank);
  made_by_[training_data_name] = training_data_hash(config.data, *inputs_.datasets.train);
}

CheckpointInfo CheckpointContents::of(const CheckpointProgress& progress, const State& state,
                                      const PreparedSaves& begun, std::int64_t sequence,
                                      bool on_nodes) {
  CheckpointInfo info;
  Manifest& manifest = info.manifest;
  manifest.iteration = progress.iterations;
  manifest.sequence = sequence;
  manifest.run_id = begun.run_id;
  manifest.made_by = made_by_;
  if (on_nodes) manifest.made_by["start"] = begun.start;
  manifest.samples = inputs_.begin.batches.first_sample(progress.iterations);
  manifest.tokens = inputs_.begin.tokens + (manifest.samples - inputs_.begin.samples) *
                                               inputs_.config.data.sequence_length;
  if (sources_) {
    const std::vector<std::int64_t> consumed = sources_->drawn(manifest.samples);
    for (std::size_t i = 0; i < consumed.size(); ++i) {
      manifest.numbers[consumed_name(i)] = consumed[i];
    }
  }
  for (const StateNumber& number : state.numbers) {
    std::visit([&](const auto* value) { manifest.numbers[number.name] = *value; }, number.value);
  }
  if (const WeightStash* stash = stepper_.model().stash(); stash != nullptr) {
    const std::int64_t iterations =
        inputs_.begin.lists->begun.iterations + progress.iterations - inputs_.begin.iteration;
    list_in_flight(
        run_sizes(inputs_.config.batch, inputs_.config.training, inputs_.config.pipeline),
        inputs_.schedule, progress.iterations, {iterations, stash->live()}, manifest);
  }
  manifest.numbers["skipped"] = progress.skipped;
  if (progress.validation_loss && std::isfinite(*progress.validation_loss)) {
    manifest.numbers["validation_loss"] = *progress.validation_loss;
  }
  const Architecture& architecture = stepper_.model().architecture();
  info.files = inputs_.extras.files;
  info.files["config.json"] =
      with_extras(architecture.formats().hugging_face_config(inputs_.config), inputs_.extras);
  info.files["trident/config.json"] = config_to_json(inputs_.config);
  return info;
}

}  // namespace trident
