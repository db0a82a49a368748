#include "run/loop/in_flight.h"

#include <algorithm>
#include <string>
#include <variant>

#include "scheduler/iterations.h"

namespace trident {
namespace {

constexpr std::int64_t kMost = std::int64_t{1}
                               << 53;  // the largest count, as in the rest of a manifest

std::string layers_name(const Schedule& schedule, std::size_t stage) {
  return schedule.kind + ".layers_of_stage_" + std::to_string(stage);
}

// -1 if the manifest lacks the number.
std::int64_t number_in(const Manifest& manifest, const std::string& name) {
  const auto it = manifest.numbers.find(name);
  if (it == manifest.numbers.end() || !std::holds_alternative<std::int64_t>(it->second)) return -1;
  const auto number = std::get<std::int64_t>(it->second);
  return number <= kMost ? number : -1;
}

}  // namespace

RunSizes run_sizes(const BatchConfig& batch, const TrainingConfig& training,
                   const PipelineConfig& pipeline) {
  return {batch.global_batch_size, training.train_iters, pipeline.layer_split};
}

void list_in_flight(const RunSizes& sizes, const Schedule& schedule, std::int64_t iterations,
                    const Begun& begun, Manifest& manifest) {
  if (!schedule.asynchronous()) return;
  auto& numbers = manifest.numbers;
  numbers[schedule.kind + ".stages"] = std::int64_t{schedule.stages};
  numbers[schedule.kind + ".micro_batches"] = std::int64_t{schedule.microbatches};
  numbers[schedule.kind + ".global_batch_size"] = sizes.global_batch_size;
  numbers[schedule.kind + ".iterations"] = begun.iterations;
  numbers[schedule.kind + ".updates"] = begun.updates;
  numbers[schedule.kind + ".left"] = sizes.train_iters - iterations;
  const std::vector<std::int64_t>& split = sizes.layer_split;
  for (std::size_t s = 0; s < split.size(); ++s) numbers[layers_name(schedule, s)] = split[s];
}

bool has_in_flight(const Manifest& manifest) {
  return std::ranges::any_of(manifest.numbers, [](const auto& number) {
    const auto* left = std::get_if<std::int64_t>(&number.second);
    return number.first.ends_with(".left") && left != nullptr && *left > 0;
  });
}

Begun in_flight_in(const RunSizes& sizes, const Schedule& schedule, const Manifest& manifest) {
  if (!schedule.asynchronous()) return {};
  const auto number = [&](const char* name) {
    return number_in(manifest, schedule.kind + "." + name);
  };
  const Begun begun{number("iterations"), number("updates")};
  const std::int64_t left = number("left");
  const std::int64_t here = sizes.train_iters - manifest.iteration;
  const Begun empty{0, std::max<std::int64_t>(0, begun.updates)};
  if (begun.iterations <= 0 || begun.iterations > manifest.iteration || begun.updates < 0 ||
      left <= 0 || here <= 0 || number("stages") != schedule.stages ||
      number("micro_batches") != schedule.microbatches ||
      number("global_batch_size") != sizes.global_batch_size) {
    return empty;
  }
  const std::vector<std::int64_t>& split = sizes.layer_split;
  for (std::size_t s = 0; s < split.size(); ++s) {
    if (number_in(manifest, layers_name(schedule, s)) != split[s]) return empty;
  }
  // Near its end a run begins only as many forward passes as it has iterations left.
  if (left != here && IterationLists(schedule, left, begun.iterations).in_flight() !=
                          IterationLists(schedule, here, begun.iterations).in_flight()) {
    return empty;
  }
  return begun;
}

}  // namespace trident
