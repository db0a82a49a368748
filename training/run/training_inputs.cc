#include "training/run/training_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/request_problems.h"
#include "training/hugging_face/hugging_face.h"
#include "training/setup/from_config.h"
#include "training/setup/kinds.h"

namespace trident {
namespace {

DataSpec data_spec(const Config& config, const std::string& written) {
  DataSpec spec{.split = config.data.split_fractions(),
                .sequence_length = config.data.sequence_length,
                .vocab_size = config.model.vocab_size,
                .vocab_size_given = is_written(written, "/model/vocab_size"),
                .byte_tokenizer = config.data.tokenizer.type == "byte",
                .shuffle = config.data.shuffle,
                .seed = static_cast<std::uint64_t>(config.data.seed)};
  const auto sources = [](const std::vector<DataSource>& from) {
    std::vector<SourceSpec> to;
    for (const DataSource& source : from) to.push_back({source.path, source.weight});
    return to;
  };
  spec.train = sources(config.data.train);
  for (const ValidationSet& set : config.data.validation) {
    spec.validation.push_back({set.name, sources(set.sources)});
  }
  return spec;
}

// Its text goes among the extras, where there is one.
void take_tokenizer(TrainingInputs& inputs) {
  const std::string& path = inputs.config.data.tokenizer.path;
  if (!inputs.saves_tokenizer()) return;
  std::error_code unreadable;  // then opening it names the reason
  if (!std::filesystem::exists(path, unreadable) && !unreadable) return;
  try {
    inputs.extras.files["tokenizer.json"] = read_tokenizer(path);
  } catch (const RequestError& error) {
    throw error.at("config: /data/tokenizer/path: ");
  }
}

// A run that may resume must not begin anew beside checkpoints, which nothing here reads yet.
void refuse_checkpoints(const Config& config) {
  namespace fs = std::filesystem;
  if (config.checkpoint.resume == "never" || config.checkpoint.save.empty()) return;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(config.checkpoint.save, none)) {
    const std::string name = entry.path().filename().string();
    if (name != "latest" && !name.starts_with("iteration-")) continue;
    throw RequestError(
        fmt::format("config: /checkpoint/resume: \"{}\" would go on from the checkpoint {}, but "
                    "resuming is not "
                    "available yet; use \"never\", which begins anew, or another checkpoint.save",
                    config.checkpoint.resume, entry.path().string()));
  }
}

}  // namespace

TrainingInputs prepare_training(const LoadedConfig& loaded) {
  TrainingInputs inputs{.config = loaded.config,
                        .written = loaded.written,
                        .architecture = architecture_of(loaded.config)};
  Config& config = inputs.config;
  RequestProblems problems;
  problems.collect([&] { inputs.schedule = schedule_of(config); });
  if (!config.checkpoint.load.empty()) {
    problems.collect([&] {
      check_hugging_face(config.checkpoint.load, config, *inputs.architecture);
      inputs.extras = read_extras(config.checkpoint.load, *inputs.architecture, false);
    });
  }
  problems.collect([&] { take_tokenizer(inputs); });
  problems.collect([&] { refuse_checkpoints(config); });
  problems.collect([&] { inputs.datasets = build_datasets(data_spec(config, loaded.written)); });
  if (inputs.datasets.train != nullptr && config.training.train_iters == 0) {
    const std::int64_t samples =
        inputs.datasets.train->samples_per_epoch() * config.training.train_epochs;
    problems.collect([&] {
      set_train_iters(config, std::max<std::int64_t>(1, samples / config.batch.global_batch_size));
    });
  }
  problems.raise();
  inputs.lists = std::make_shared<RunLists>(inputs.schedule, inputs.config.training.train_iters);
  return inputs;
}

TrainingInputs prepare_training(const Config& config) {
  return prepare_training(LoadedConfig{.config = config});
}

void go_on_from(TrainingInputs& inputs, std::int64_t k,
                std::function<void(Context&, State&)> restore) {
  const std::int64_t iterations = inputs.config.training.train_iters;
  if (k < 0 || k >= iterations) {
    throw RequestError(
        fmt::format("a run of {} iterations can't begin at iteration {}", iterations, k));
  }
  inputs.first_iteration = k;
  inputs.restore = std::move(restore);
  inputs.lists = std::make_shared<RunLists>(inputs.schedule, iterations - k);
}

}  // namespace trident
