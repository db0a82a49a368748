#include "run/loop/training_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files/json.h"
#include "base/request_problems.h"
#include "checkpoint/checkpoint_reader.h"
#include "engine/setup/from_config.h"
#include "engine/setup/param_group_check.h"
#include "engine/setup/registry.h"
#include "engine/setup/text_setup.h"
#include "formats/hugging_face/hugging_face.h"
#include "formats/hugging_face/weights_folder.h"
#include "run/folders/locked_folder.h"
#include "run/loop/in_flight.h"

namespace trident {
namespace {

DataSpec data_spec(const Config& config, const std::string& written, const TextAccess& texts) {
  DataSpec spec{
      .split = config.data.split_fractions(),
      .sequence_length = config.data.sequence_length,
      .vocab_size = config.model.vocab_size,
      // If the config doesn't state it, a folder of weights does.
      .vocab_size_given = is_written(written, "/model/vocab_size") ||
                          (!config.checkpoint.load.empty() && config.checkpoint.load != "auto" &&
                           !is_iteration(config.checkpoint.load)),
      .texts = texts,
      .shuffle = config.data.shuffle,
      .seed = static_cast<std::uint64_t>(config.data.seed),
      .documents = {.wanted = config.data.separates_documents(),
                    .mask_labels = config.data.eod_mask_loss,
                    .window = config.data.packs_documents() ? config.data.packing_window : 0}};
  const auto sources = [](const std::vector<DataSource>& from) {
    std::vector<SourceSpec> to;
    for (const DataSource& source : from) to.push_back({source.path, source.weight});
    return to;
  };
  spec.texts.encoder = document_encoder_when_asked(config.data);
  spec.texts.cache = config.data.cache_path;
  spec.train = sources(config.data.train);
  for (const ValidationSet& set : config.data.validation) {
    spec.validation.push_back({set.name, sources(set.sources)});
  }
  return spec;
}

// The verified Hugging Face files of a checkpoint, without the weights.
std::map<std::string, std::string> companions_of(const FoundCheckpoint& checkpoint) {
  if (checkpoint.on_nodes != nullptr) return checkpoint.on_nodes->texts;
  std::map<std::string, std::string> texts;
  CheckpointReader reader(checkpoint.path, *checkpoint.manifest);
  for (const auto& [name, file] : checkpoint.manifest->files) {
    if (name.ends_with(".json") && name.find('/') == std::string::npos &&
        !name.ends_with(".index.json")) {
      texts[name] = reader.text(name);
    }
  }
  return texts;
}

// Sets the extras of the starting point. Throws DamagedCheckpoint if a file is damaged.
void take_extras(TrainingInputs& inputs) {
  inputs.extras = {};
  const StartingPoint& start = inputs.start;
  if (!start.checkpoints.empty()) {
    const FoundCheckpoint& first = start.checkpoints.front();
    try {
      inputs.extras = extras_in(companions_of(first), first.path, inputs.architecture->formats());
    } catch (const RequestError& error) {
      throw DamagedCheckpoint(error.problems());
    }
  } else if (!start.weights.empty()) {
    inputs.extras = read_extras(start.weights, inputs.architecture->formats(), false);
  }
}

// Derives train_iters from training.train_epochs and the samples that are left.
void derive_iterations(TrainingInputs& inputs) {
  if (inputs.datasets.train == nullptr) return;
  Config& config = inputs.config;
  const std::int64_t samples =
      inputs.datasets.train->samples_per_epoch() * config.training.train_epochs;
  std::int64_t done = 0, consumed = 0;
  if (!inputs.start.checkpoints.empty()) {
    const Manifest& manifest = *inputs.start.checkpoints.front().manifest;
    if (inputs.start.taken.iteration) done = manifest.iteration;
    if (inputs.start.taken.data) consumed = manifest.samples;
  }
  config.scheduler = inputs.epochs.scheduler;  // undoes the values for another checkpoint
  const std::int64_t left = std::max<std::int64_t>(0, samples - consumed);
  const BatchSizes batches(config.batch.global_batch_size, ramp_of(config.batch), done, consumed);
  set_train_iters(config, std::max<std::int64_t>(1, done + batches.iterations(left)));
}

// Derives inputs from the starting point; takes the first checkpoint that can be read.
void derive_from_start(TrainingInputs& inputs) {
  for (;;) {
    try {
      if (inputs.epochs.asked) derive_iterations(inputs);
      compare_configs(inputs.start, inputs.config);
      return take_extras(inputs);
    } catch (const DamagedCheckpoint& error) {
      fall_back(inputs.start, inputs.config.checkpoint.load, error.what());
    }
  }
}

// Whether the tokens are the bytes of texts. False if that is unknown: any tokenizer may have made
// token files, and the initial weights may come with a tokenizer.
bool learns_bytes(const TrainingInputs& inputs) {
  const Config& config = inputs.config;
  if (config.model.vocab_size < 256 || config.checkpoint.save.empty()) return false;
  try {
    const bool texts = std::ranges::all_of(
        config.data.train, [](const DataSource& one) { return is_tokenized(one.path, false); });
    if (!texts) return false;
  } catch (const RequestError&) {
    return false;  // opening it reports the problem
  }
  const StartingPoint& start = inputs.start;
  std::string loaded;
  if (!start.checkpoints.empty()) {
    const auto companions = companions_of(start.checkpoints.front());
    const auto found = companions.find("tokenizer.json");
    if (found != companions.end()) loaded = found->second;
  } else if (!start.weights.empty()) {
    const std::string path = start.weights + "/tokenizer.json";
    std::error_code missing;
    if (std::filesystem::is_regular_file(path, missing)) loaded = read_tokenizer(path);
  }
  return loaded.empty() || loaded == byte_tokenizer();
}

// Keeps the tokenizer of the run's checkpoint, if the run reads token files.
void keep_tokenizer(TrainingInputs& inputs) {
  const auto& checkpoints = inputs.start.checkpoints;
  if (checkpoints.empty() || inputs.config.checkpoint.save.empty()) return;
  for (auto& [name, text] : companions_of(checkpoints.front())) {
    if (std::ranges::find(set_companions, name) != set_companions.end()) {
      inputs.extras.files.emplace(name, text);
    }
  }
}

// Adds a message if the run's tokenizer differs from its checkpoint's.
void compare_tokenizers(TrainingInputs& inputs) {
  const auto& checkpoints = inputs.start.checkpoints;
  const auto now = inputs.extras.files.find("tokenizer.json");
  if (checkpoints.empty() || now == inputs.extras.files.end()) return;
  const auto companions = companions_of(checkpoints.front());
  const auto was = companions.find("tokenizer.json");
  if (was == companions.end() || json_or_null(was->second) == json_or_null(now->second)) return;
  inputs.start.messages.push_back(
      fmt::format("data.tokenizer: is another tokenizer than that of {}: ids may stand for other "
                  "texts than those that the model has learned",
                  checkpoints.front().path));
}

// Adds the tokenizer, if there is one, to the extras, and the token that ends a text, if the
// initial weights don't state it.
void take_tokenizer(TrainingInputs& inputs) {
  if (inputs.config.data.tokenizer.type == "file") {
    if (!inputs.saves_tokenizer()) return keep_tokenizer(inputs);
    const std::string path = tokenizer_file(inputs.config.data.tokenizer);
    std::error_code unreadable;  // then opening it names the reason
    if (!std::filesystem::exists(path, unreadable) && !unreadable) return keep_tokenizer(inputs);
  } else if (!learns_bytes(inputs)) {
    return keep_tokenizer(inputs);
  }
  try {
    TokenizerFiles files =
        tokenizer_files(inputs.config.data.tokenizer, inputs.config.model.max_position_embeddings);
    auto& texts = inputs.extras.files;
    // A generation_config.json without an end would hide the end in the weights' config.json.
    const auto config = json_or_null(inputs.extras.config);
    const bool names_end =
        config.is_object() && config.contains("eos_token_id") && !config["eos_token_id"].is_null();
    if (texts.contains("generation_config.json") || (names_end && !files.end_of_text)) {
      files.texts.erase("generation_config.json");
    }
    for (auto& [name, text] : files.texts) texts[name] = std::move(text);
    if (files.end_of_text) inputs.extras.set_end_of_text(*files.end_of_text);
  } catch (const RequestError& error) {
    throw error.at("config: /data/tokenizer/path: ");
  }
}

// Derives the batch sizes from the samples consumed, not from earlier batch sizes.
RunBegin with_batches(RunBegin begin, const Config& config) {
  const BatchRamp ramp = ramp_of(config.batch);
  begin.batches = BatchSizes(config.batch.global_batch_size, ramp, begin.iteration, begin.samples);
  begin.ramp_lists =
      ramp.samples > 0 ? std::make_shared<RampLists>(config, begin.batches) : nullptr;
  return begin;
}

// The run begins at the first checkpoint of `start`; without one, at iteration 0.
RunBegin begin_of(const Config& config, const Schedule& schedule, const StartingPoint& start) {
  RunBegin begin;
  Begun begun;
  if (!start.checkpoints.empty()) {
    const Manifest& manifest = *start.checkpoints.front().manifest;
    const TakenParts& taken = start.taken;
    constexpr std::int64_t kMostSamples = std::int64_t{1} << 53;
    if (manifest.iteration > kMostSamples / config.batch.global_batch_size) {
      throw RequestError(fmt::format("{}/{}: /iteration: {} is more than a run has",
                                     start.checkpoints.front().path, manifest_name,
                                     manifest.iteration));
    }
    if (taken.iteration) {
      begin.iteration = manifest.iteration;
      begin.tokens = manifest.tokens;
    }
    if (taken.data) begin.samples = manifest.samples;
    if (taken.all() && taken.entries == 0)
      begun = in_flight_in(run_sizes(config.batch, config.training, config.pipeline), schedule,
                           manifest);
  }
  // A complete run has no iteration left, but lists need at least one.
  const std::int64_t left = config.training.train_iters - begin.iteration;
  begin.lists = std::make_shared<RunLists>(schedule, std::max<std::int64_t>(1, left), begun);
  return with_batches(std::move(begin), config);
}

}  // namespace

FoundOnNodes find_on_nodes(const CheckpointConfig& checkpoint, int rank, const AskProcesses& ask) {
  std::shared_ptr<StartLock> hold;  // held by process 0
  FoundOnNodes found = find_on_nodes(
      checkpoint.local.dir, checkpoint.save, rank,
      [&] {
        if (looks_on_nodes(checkpoint)) hold = std::make_shared<StartLock>(checkpoint.save);
        return starts_on_nodes(checkpoint);
      },
      ask);
  found.hold = std::move(hold);
  return found;
}

TrainingInputs prepare_training(const LoadedConfig& loaded) {
  const auto alone = [](const std::string& own, const auto& answer) { return answer({own}); };
  TextAccess texts;
  texts.writes = true;
  return prepare_training(loaded, find_on_nodes(loaded.config.checkpoint, 0, alone), texts);
}

TrainingInputs prepare_training(const LoadedConfig& loaded, const FoundOnNodes& on_nodes,
                                const TextAccess& texts) {
  TrainingInputs inputs{.config = loaded.config,
                        .written = loaded.written,
                        .architecture = architecture_of(loaded.config)};
  Config& config = inputs.config;
  RequestProblems problems;
  inputs.epochs = {config.training.train_iters == 0, config.scheduler};
  problems.collect([&] { inputs.schedule = schedule_of(config); });
  problems.collect([&] { check_param_groups(config, *inputs.architecture); });
  problems.collect(
      [&] { inputs.datasets = build_datasets(data_spec(config, loaded.written, texts)); });
  problems.collect([&] {
    inputs.start = find_start(config.checkpoint, config.logging.dir, on_nodes);
    const std::string& weights = inputs.start.weights;
    if (!weights.empty()) {
      const std::int64_t fewer = check_hugging_face(weights, config, *inputs.architecture);
      const std::string note =
          notes_of(weights, inputs.architecture->formats(), config.model.mtp_num_layers);
      if (!note.empty()) inputs.start.messages.push_back(note);
      if (config.model.pad_token_id && !is_written(loaded.written, "/model/pad_token_id")) {
        inputs.start.messages.push_back(
            fmt::format("{} has pad_token_id {}: its row of the embedding gets no gradient where "
                        "it is looked up",
                        weights, *config.model.pad_token_id));
      }
      if (fewer > 0) {
        inputs.start.messages.push_back(
            fmt::format("the vocabulary of {} has {} entries; the added ones get initial weights",
                        weights, fewer));
      }
    }
    derive_from_start(inputs);
  });
  problems.collect([&] {
    take_tokenizer(inputs);
    compare_tokenizers(inputs);
  });
  problems.raise();
  if (!config.checkpoint.save.empty()) {
    std::set<std::string> names;
    for (const auto& [name, text] : inputs.extras.files) names.insert(name);
    const std::string note = note_of_companions(config.checkpoint.save, names);
    if (!note.empty()) inputs.start.messages.push_back(note);
  }
  inputs.begin = begin_of(config, inputs.schedule, inputs.start);
  return inputs;
}

TrainingInputs prepare_training(const Config& config) {
  return prepare_training(LoadedConfig{.config = config});
}

TrainingInputs with_next_checkpoint(TrainingInputs inputs, const std::string& why) {
  fall_back(inputs.start, inputs.config.checkpoint.load, why);
  derive_from_start(inputs);
  take_tokenizer(inputs);
  inputs.begin = begin_of(inputs.config, inputs.schedule, inputs.start);
  return inputs;
}

TrainingInputs resumed_from(TrainingInputs inputs, std::int64_t k,
                            std::function<void(Context&, State&)> restore) {
  const Config& config = inputs.config;
  const std::int64_t iterations = config.training.train_iters;
  if (k < 0 || k >= iterations) {
    throw RequestError(
        fmt::format("a run of {} iterations can't begin at iteration {}", iterations, k));
  }
  inputs.start = {};
  RunBegin begin{.iteration = k};
  begin.samples =
      BatchSizes(config.batch.global_batch_size, ramp_of(config.batch), 0, 0).first_sample(k);
  begin.tokens = begin.samples * config.data.sequence_length;
  begin.restore = std::move(restore);
  begin.lists = std::make_shared<RunLists>(inputs.schedule, iterations - k);
  inputs.begin = with_batches(std::move(begin), config);
  return inputs;
}

}  // namespace trident
