#include "run/loop/start_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <variant>
#include <vector>

#include "run/loop/checkpoint_contents.h"
#include "run/loop/in_flight.h"
#include "settings/problems.h"

namespace trident {
namespace {

// Messages about sources that have fewer samples than a batch takes of them.
std::vector<std::string> repeated_samples(const Dataset& train, std::int64_t batch) {
  std::vector<std::string> messages;
  const std::vector<std::int64_t> drawn = train.interleave().drawn(batch);
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

// The names of states in a checkpoint that `state` lacks.
std::string untaken_states(const Manifest& manifest, const State& state) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : manifest.tensors) {
    if (!name.starts_with("weight")) names.insert(name.substr(0, name.find('/')));
  }
  names.erase("master");  // if `state` has none, the weights are restored from it
  for (const StateTensor& tensor : state.tensors) names.erase(tensor.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void report_start(const TrainingInputs& inputs, Stepper& stepper,
                  const std::map<std::string, std::string>& made_by, double reading_seconds,
                  const RunReporter& reporter) {
  for (const std::string& message : inputs.start.messages) reporter.inform(message);
  for (const std::string& message :
       repeated_samples(*inputs.datasets.train, inputs.config.batch.global_batch_size)) {
    reporter.message(message);
  }
  if (inputs.start.checkpoints.empty()) return;
  const FoundCheckpoint& from = inputs.start.checkpoints.front();
  const Manifest& manifest = *from.manifest;
  const TakenParts& taken = inputs.start.taken;
  std::vector<std::string> left;
  if (!taken.optimizer) left.emplace_back("the optimizer's state");
  if (!taken.iteration) left.emplace_back("the iteration");
  if (!taken.data) left.emplace_back("the place in the data");
  reporter.inform(fmt::format(
      "{} {}: iteration {} of run {}, {} samples ({} tokens) consumed{}; read in {:.2f} s",
      left.empty() ? "resuming from" : "beginning with", from.path, manifest.iteration,
      manifest.run_id.empty() ? "unknown" : manifest.run_id, manifest.samples, manifest.tokens,
      left.empty() ? "" : "; left out: " + list_and(left), reading_seconds));
  for (const auto& [theirs, ours] : inputs.config.checkpoint.key_mapping) {
    if (inputs.start.own) break;
    reporter.inform(fmt::format("tensors: {} in the checkpoint is {} here", theirs, ours));
  }
  if (const std::string states = untaken_states(manifest, stepper.state()); !states.empty()) {
    reporter.message("not loaded from the checkpoint, as this run lacks these states: " + states);
  }
  if (inputs.begin.lists->begun.iterations == 0 && has_in_flight(manifest)) {
    const bool whole = taken.all() && taken.entries == 0;
    reporter.message(
        whole ? "the schedule's micro-batches, ranks or layers differ from the checkpoint's: the "
                "micro-batches in flight are dropped, and trained again"
              : "the checkpoint is loaded in part: its micro-batches in flight are dropped");
  }
  if (taken.data) {
    const auto now = inputs.datasets.train->interleave().drawn(manifest.samples);
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto was = manifest.numbers.find(consumed_name(i));
      if (was == manifest.numbers.end() || was->second == SavedNumber(now[i])) continue;
      reporter.message(fmt::format(
          "data.train.{}: {} of its samples had been consumed, {} would have been with the present "
          "sources and weights: some come twice, or not at all",
          i, std::visit([](auto n) { return fmt::format("{}", n); }, was->second), now[i]));
    }
  }
  for (const auto& [name, now] : made_by) {
    const auto was = manifest.made_by.find(name);
    if (was == manifest.made_by.end() || was->second == now) continue;
    if (name == training_data_name) {
      if (!taken.data) continue;
      reporter.message(
          "the training data's files have changed since the checkpoint was saved: "
          "samples may come twice, or not at all");
      continue;
    }
    reporter.message(
        fmt::format("{}: {} saved it, now {}; last digits may differ", name, was->second, now));
  }
  if (inputs.config.training.train_iters <= inputs.begin.iteration) {
    reporter.inform(fmt::format("the run is complete: training.train_iters is {}",
                                inputs.config.training.train_iters));
  }
}

}  // namespace trident
