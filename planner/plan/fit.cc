#include "planner/plan/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "engine/setup/from_config.h"
#include "planner/plan/planned_pipeline.h"
#include "planner/plan/stage_plan.h"

namespace trident {
namespace {

using Changes = std::vector<std::string>;  // overrides

Changes operator+(Changes a, const Changes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Returns the config with these changes, or nothing where they make it invalid.
std::optional<Config> changed(const Config& config, const Changes& changes) {
  try {
    return parse_config(config_to_json(config), changes, {.constraints = config.constraints})
        .config;
  } catch (const RequestError&) {
    return std::nullopt;
  }
}

// Returns the peak with these changes; nothing where they make the config invalid or the peak
// exceeds `limit`.
std::optional<FittingChange> fitting(const Config& config, const Architecture& architecture,
                                     const Changes& changes, std::int64_t limit) {
  const auto candidate = changed(config, changes);
  const auto peak = candidate ? planned_peak(*candidate, architecture, limit) : std::nullopt;
  if (!peak || *peak > limit) return std::nullopt;
  return FittingChange{changes, *peak, candidate->world_size()};
}

Changes micro_batch(std::int64_t size) {
  return {fmt::format("batch.micro_batch_size={}", size), "batch.gradient_accumulation_steps=null"};
}

// The possible changes, the one that saves most memory last. The first entry of each list is no
// change.
struct Choices {
  std::vector<Changes> stages{{}}, recomputations{{}}, sizes{{}};
};

// `largest` is the largest micro-batch size that fits without other changes.
Choices choices_of(const Config& config, std::optional<std::int64_t> largest) {
  Choices choices;
  if (config.parallel.data_parallel_size > 1) {
    for (std::int64_t stage = config.zero_optimization.stage + 1; stage <= 3; ++stage) {
      choices.stages.push_back({fmt::format("zero_optimization.stage={}", stage),
                                "zero_optimization.reduce_each_micro_batch=null"});
    }
  }
  const std::string& now = config.activation_checkpointing.granularity;
  for (const char* granularity : {"selective", "full"}) {
    if (now == "full" || now == granularity) continue;
    choices.recomputations.push_back(
        {fmt::format("activation_checkpointing.granularity={}", granularity)});
  }
  for (const std::int64_t size : {largest.value_or(0), std::int64_t{1}}) {
    if (size > 0 && size != config.batch.micro_batch_size &&
        (size > 1 || choices.sizes.size() == 1)) {
      choices.sizes.push_back(micro_batch(size));
    }
  }
  return choices;
}

// Returns the combinations that change exactly `many` of the three.
std::vector<Changes> sets_of(const Choices& choices, int many) {
  std::vector<Changes> sets;
  for (const Changes& stage : choices.stages) {
    for (const Changes& recomputation : choices.recomputations) {
      for (const Changes& size : choices.sizes) {
        const int count = !stage.empty() + !recomputation.empty() + !size.empty();
        if (count == many) sets.push_back(stage + recomputation + size);
      }
    }
  }
  return sets;
}

// Returns the last valid entry of each list, to combine with other numbers of ranks.
Changes least_memory_changes(const Config& config, const Choices& choices) {
  Changes thrifty{"runtime.ranks_per_node=null"};
  for (const auto* list : {&choices.stages, &choices.recomputations, &choices.sizes}) {
    const auto last = std::find_if(list->rbegin(), list->rend(), [&](const Changes& set) {
      return changed(config, thrifty + set).has_value();
    });
    if (last != list->rend()) thrifty = thrifty + *last;
  }
  return thrifty;
}

}  // namespace

std::optional<std::int64_t> planned_peak(const Config& config, const Architecture& architecture,
                                         std::int64_t limit) {
  try {
    const std::int64_t library = library_bytes(config);
    // On a GPU, copies of the state use only spare memory (DeviceCopies).
    const bool spare = is_for_gpu(config.runtime);
    const auto needed = [&](const PlannedMemory& memory) {
      return memory.peak_total - (spare ? memory.of(Category::staging) : 0);
    };
    const Schedule schedule = schedule_of(config);
    const auto places = plan_memory(
        config, architecture, schedule,
        [&](const PlannedRank& planned) { return needed(planned.memory) > limit - library; });
    std::int64_t peak = 0;
    for (const PlannedRank& planned : places) peak = std::max(peak, needed(planned.memory));
    if (peak > limit - library) return peak + library;
    const Mesh mesh = mesh_of(config.parallel);
    const auto rule = make_update_rule(config);
    for (int place = 0; place < schedule.stages; ++place) {
      const PlannedRank& planned = places[static_cast<std::size_t>(place)];
      StagePlan stage(config, schedule, mesh, planned, *rule);
      for (const int rank : mesh.same_stage(place)) {
        peak = std::max(peak, needed(stage.memory(stage.own(rank), rank == 0)));
      }
    }
    return peak + library;
  } catch (const RequestError&) {
    return std::nullopt;  // there is no such schedule
  }
}

std::int64_t parse_memory(std::string_view text) {
  static const std::map<std::string_view, double> units{
      {"B", 1},     {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, number);
  std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  const auto factor = units.find(unit);
  const double bytes = factor == units.end() ? 0 : number * factor->second;
  if (code == std::errc{} && unit.empty() && number >= 1) {
    throw RequestError(
        fmt::format("--memory: \"{}\" has no unit; say {}GiB, or {}B for bytes", text, text, text));
  }
  if (code != std::errc{} || !(bytes >= 1 && bytes < 9e18)) {
    throw RequestError(fmt::format(
        "--memory: \"{}\" is not an amount of memory; use a number and its unit: B, KB, "
        "MB, GB, TB (decimal) or KiB, MiB, GiB, TiB, such as 24GiB",
        text));
  }
  return static_cast<std::int64_t>(bytes);
}

std::optional<std::int64_t> largest_micro_batch(const Config& config,
                                                const Architecture& architecture,
                                                std::int64_t limit) {
  const std::int64_t part = config.batch.micro_batch_size * config.num_microbatches();
  // More sequences usually take more memory, but fewer micro-batches may take less. So every size
  // is tried that the schedule allows.
  for (std::int64_t count = 1; count <= part; ++count) {
    if (part % count != 0) continue;
    if (fitting(config, architecture, micro_batch(part / count), limit)) return part / count;
  }
  return std::nullopt;
}

MemoryFit fit_memory(const Config& config, const Architecture& architecture, std::int64_t limit) {
  MemoryFit fit{
      .limit = limit,
      .peak_bytes =
          planned_peak(config, architecture).value_or(std::numeric_limits<std::int64_t>::max()),
      .micro_batch_size = largest_micro_batch(config, architecture, limit),
      .changes = {}};
  if (fit.fits()) return fit;
  const Choices choices = choices_of(config, fit.micro_batch_size);
  const auto consider = [&](const Changes& set) {
    if (auto change = fitting(config, architecture, set, limit)) {
      fit.changes.push_back(std::move(*change));
    }
  };
  // Change one thing, then two, then three.
  for (int many = 1; many <= 3 && fit.changes.empty(); ++many) {
    for (const Changes& set : sets_of(choices, many)) consider(set);
  }
  // Add ranks, with all else at the values that save most memory.
  const Changes thrifty = least_memory_changes(config, choices);
  for (std::int64_t factor = 2; factor <= 1024 && fit.changes.empty(); factor *= 2) {
    consider(thrifty + Changes{fmt::format("parallel.tensor_model_parallel_size={}",
                                           config.parallel.tensor_model_parallel_size * factor)});
    consider(thrifty + Changes{fmt::format("parallel.pipeline_model_parallel_size={}",
                                           config.parallel.pipeline_model_parallel_size * factor),
                               "pipeline.layer_split=null"});
  }
  return fit;
}

nlohmann::ordered_json fit_json(const MemoryFit& fit) {
  nlohmann::ordered_json changes = nlohmann::ordered_json::array();
  for (const FittingChange& change : fit.changes) {
    changes.push_back({{"set", change.set},
                       {"peak_bytes", change.peak_bytes},
                       {"world_size", change.world_size}});
  }
  nlohmann::ordered_json json{{"limit_bytes", fit.limit},
                              {"peak_bytes", fit.peak_bytes},
                              {"fits", fit.fits()},
                              {"largest_micro_batch_size", nullptr},
                              {"changes_that_fit", changes}};
  if (fit.micro_batch_size) json["largest_micro_batch_size"] = *fit.micro_batch_size;
  return json;
}

std::string fit_text(const MemoryFit& fit) {
  std::string text =
      fmt::format("memory  {} a rank: the largest rank takes {}, {}\n", bytes_text(fit.limit),
                  bytes_text(fit.peak_bytes),
                  fit.fits() ? "it fits" : bytes_text(fit.peak_bytes - fit.limit) + " too much");
  text += fit.micro_batch_size ? fmt::format("        largest micro_batch_size that fits: {}\n",
                                             *fit.micro_batch_size)
                               : std::string("        no micro_batch_size fits as it is\n");
  for (const FittingChange& change : fit.changes) {
    text += fmt::format("        {} on {} with --set {}\n", bytes_text(change.peak_bytes),
                        counted(change.world_size, "rank"), fmt::join(change.set, " --set "));
  }
  if (!fit.fits() && fit.changes.empty()) {
    text += "        no ZeRO stage, recomputation, size or larger number of ranks tried fits\n";
  }
  return text;
}

}  // namespace trident
