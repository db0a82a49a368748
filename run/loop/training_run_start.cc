// How a run begins: with which weights and state, and what it says before its first iteration.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <memory>
#include <set>

#include "base/error.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/exchanged_texts.h"
#include "checkpoint/gather_from_nodes.h"
#include "checkpoint/restore.h"
#include "engine/replicas.h"
#include "formats/hugging_face/hugging_face.h"
#include "run/launch/agreement.h"
#include "run/loop/in_flight.h"
#include "run/loop/training_run.h"
#include "settings/problems.h"

namespace trident {
namespace {

// Sources of which a batch takes more samples than they have.
std::vector<std::string> repeated_samples(const Dataset& train, const Config& config) {
  std::vector<std::string> messages;
  const std::vector<std::int64_t> drawn = train.interleave().drawn(config.batch.global_batch_size);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const std::int64_t samples = train.samples_of(static_cast<int>(i));
    if (drawn[i] <= samples) continue;
    messages.push_back(fmt::format(
        "data.train.{}: {} has {} samples of {} tokens, and a batch takes {} of it: each batch "
        "repeats some",
        i, train.parts()[i].source->path(), samples, train.sequence_length(), drawn[i]));
  }
  return messages;
}

// The names of states in a checkpoint that `state` has none of.
std::string untaken_states(const Manifest& manifest, const State& state) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : manifest.tensors) {
    if (!name.starts_with("weight")) names.insert(name.substr(0, name.find('/')));
  }
  names.erase("master");  // or the weights follow from it
  for (const StateTensor& tensor : state.tensors) names.erase(tensor.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void TrainingRun::begin() {
  // `trident train` has compared more before, which other programs need not do.
  require_same_config(config_, context_, world_);
  for (const std::string& warning : topology_.warnings) reporter_.message("warning: " + warning);
  if (inputs_.saves_tokenizer() && !inputs_.extras.files.contains("tokenizer.json")) {
    reporter_.message("warning: config: /data/tokenizer/path: there is no file \"" +
                      config_.data.tokenizer.path + "\"; the saved weights go without a tokenizer");
  }
  take_weights();
  stopped_ = stop_of_any();
  if (stopped_) return reporter_.message("stopped before the first iteration: nothing is saved");
  require_equal_replicas(model_);
  if (reporter_.leads() && hooks_.on_begin) extras_.run_id = hooks_.on_begin(inputs_.start);
  saver_.begin(extras_.run_id);
  announce();
  reporter_.begin();
  files_.barrier(context_);
  context_.ledger().reset_peaks();
}

void TrainingRun::take_weights() {
  next_ = done_ = inputs_.first_iteration;
  // Entries of the vocabulary that aren't there keep these.
  if (config_.checkpoint.grow_vocabulary && !inputs_.start.own) model_.initialise();
  if (inputs_.restore) {
    restore();
  } else if (!inputs_.start.checkpoints.empty()) {
    restore_checkpoint();
  } else if (inputs_.start.weights.empty()) {
    model_.initialise();
  } else {
    load_hugging_face(model_, inputs_.start.weights, hooks_.stop);
  }
}

void TrainingRun::restore_checkpoint() {
  const FoundCheckpoint& from = inputs_.start.checkpoints.front();
  std::string mismatch, damage, failure;
  const ClockReading begin = read_clock();
  const FileWork reading = world_.file_work();
  const TakenParts& taken = inputs_.start.taken;
  std::unique_ptr<GatheredParts> gathered;  // until all have read
  const std::unique_ptr<Device> host = make_cpu_device();
  try {
    State state = stepper_.state();
    if (taken.all()) state.numbers.push_back({"skipped", &skipped_});
    if (from.on_nodes != nullptr) {
      Context context(*host, 1);
      gathered = std::make_unique<GatheredParts>(context, files_, *inputs_.files, *from.manifest,
                                                 *from.on_nodes,
                                                 needed_files(state, *from.manifest, taken));
    }
    CheckpointReader reader =
        gathered ? CheckpointReader(from.path, *from.manifest,
                                    [&](const std::string& file) { return gathered->path(file); })
                 : CheckpointReader(from.path, *from.manifest);
    restore_state(context_, state, reader, taken);
  } catch (const CommunicationError&) {
    throw;
  } catch (const MismatchedState& error) {
    mismatch = error.what();
  } catch (const RequestError& error) {
    damage = error.what();
  } catch (const std::exception& error) {  // of this moment: an older checkpoint is no answer
    failure = error.what();
  }
  for (std::string* one : {&mismatch, &failure, &damage}) {
    *one = agreed_failure(context_, files_, *one);
  }
  if (!mismatch.empty()) throw RequestError(mismatch);
  if (!failure.empty()) throw Error(failure);
  if (!damage.empty()) throw DamagedCheckpoint(damage);
  reading_seconds_ = static_cast<double>(read_clock().wall_ns - begin.wall_ns) * 1e-9;
  stepper_.restored();
}

void TrainingRun::announce() {
  for (const std::string& message : inputs_.start.messages) reporter_.inform(message);
  for (const std::string& message : repeated_samples(*inputs_.datasets.train, config_)) {
    reporter_.message(message);
  }
  if (inputs_.start.checkpoints.empty()) return;
  const FoundCheckpoint& from = inputs_.start.checkpoints.front();
  const Manifest& manifest = *from.manifest;
  const TakenParts& taken = inputs_.start.taken;
  std::vector<std::string> left;
  if (!taken.optimizer) left.emplace_back("the optimizer's state");
  if (!taken.iteration) left.emplace_back("the iteration");
  if (!taken.data) left.emplace_back("the place in the data");
  reporter_.inform(fmt::format(
      "{} {}: iteration {} of run {}, {} samples ({} tokens) consumed{}; read in {:.2f} s",
      left.empty() ? "going on from" : "beginning with", from.path, manifest.iteration,
      manifest.run_id.empty() ? "unknown" : manifest.run_id, manifest.samples, manifest.tokens,
      left.empty() ? "" : "; left out: " + list_and(left), reading_seconds_));
  for (const auto& [theirs, ours] : config_.checkpoint.key_mapping) {
    if (inputs_.start.own) break;
    reporter_.inform(fmt::format("tensors: {} there is {} here", theirs, ours));
  }
  if (const std::string states = untaken_states(manifest, stepper_.state()); !states.empty()) {
    reporter_.message("left in the checkpoint, as this run has no such state: " + states);
  }
  if (inputs_.lists->begun.iterations == 0 && has_in_flight(manifest)) {
    const bool whole = taken.all() && taken.entries == 0;
    reporter_.message(
        whole ? "the schedule's micro-batches, its ranks or their layers are others than the "
                "checkpoint's: "
                "what was in flight is left, and trained anew"
              : "of a checkpoint that is not taken as it is, what was in flight is left");
  }
  if (taken.data) {
    const auto now = inputs_.datasets.train->interleave().drawn(manifest.samples);
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto was = manifest.numbers.find(consumed_name(i));
      if (was == manifest.numbers.end() || was->second == SavedNumber(now[i])) continue;
      reporter_.message(fmt::format(
          "data.train.{}: {} of its samples had been consumed, {} would have been by the sources "
          "and weights that there are now: some come twice, or not at all",
          i, std::visit([](auto n) { return fmt::format("{}", n); }, was->second), now[i]));
    }
  }
  for (const auto& [name, now] : saver_.made_by()) {
    const auto was = manifest.made_by.find(name);
    if (was == manifest.made_by.end() || was->second == now) continue;
    if (name == training_data_name) {
      if (!taken.data) continue;
      reporter_.message(
          "the training data's files have other contents than when the checkpoint was saved: "
          "samples may come twice, or not at all");
      continue;
    }
    reporter_.message(
        fmt::format("{}: {} saved it, now {}; last digits may differ", name, was->second, now));
  }
  if (config_.training.train_iters <= inputs_.first_iteration) {
    reporter_.inform(fmt::format("the run is complete: training.train_iters is {}",
                                 config_.training.train_iters));
  }
}

void TrainingRun::restore() {
  State state = stepper_.state();
  next_ = 0;
  state.numbers.push_back({"iteration", &next_});
  state.numbers.push_back({"skipped", &skipped_});
  inputs_.restore(context_, state);
  if (next_ != inputs_.first_iteration) {
    throw Error(fmt::format("the state is of iteration {}, the run begins at {}", next_,
                            inputs_.first_iteration));
  }
  stepper_.restored();
}

}  // namespace trident
