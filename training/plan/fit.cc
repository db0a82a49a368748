#include "training/plan/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "training/plan/planned_pipeline.h"
#include "training/setup/from_config.h"

namespace trident {
namespace {

using Changes = std::vector<std::string>;  // overrides

Changes operator+(Changes a, const Changes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The config with these changes, nothing where they don't go with it.
std::optional<Config> changed(const Config& config, const Changes& changes) {
  try {
    return parse_config(config_to_json(config), changes, {.rules = config.rules}).config;
  } catch (const RequestError&) {
    return std::nullopt;
  }
}

Changes micro_batch(std::int64_t size) {
  return {fmt::format("batch.micro_batch_size={}", size), "batch.gradient_accumulation_steps=null"};
}

}  // namespace

std::optional<std::int64_t> planned_peak(const Config& config, const Architecture& architecture) {
  try {
    const auto ranks = plan_pipeline(config, architecture, schedule_of(config));
    std::int64_t peak = ranks.front().collecting.peak_total;
    for (const PlannedRank& rank : ranks) peak = std::max(peak, rank.memory.peak_total);
    return peak + library_bytes(config);
  } catch (const RequestError&) {
    return std::nullopt;  // no such schedule
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
  if (code == std::errc{} && unit.empty()) {
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
  const std::int64_t part = config.batch.global_batch_size / config.parallel.data_parallel_size;
  // Mostly more sequences take more memory, but fewer micro-batches may take less: none is passed
  // over but those that don't go with the schedule.
  for (std::int64_t count = 1; count <= part; ++count) {
    if (part % count != 0) continue;
    const auto candidate = changed(config, micro_batch(part / count));
    const auto peak = candidate ? planned_peak(*candidate, architecture) : std::nullopt;
    if (peak && *peak <= limit) return part / count;
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
  std::vector<Changes> stages{{}}, recomputations{{}}, sizes{{}};
  if (config.parallel.data_parallel_size > 1) {
    for (std::int64_t stage = config.zero_optimization.stage + 1; stage <= 3; ++stage) {
      stages.push_back({fmt::format("zero_optimization.stage={}", stage),
                        "zero_optimization.reduce_each_micro_batch=null"});
    }
  }
  const std::string& now = config.activation_checkpointing.granularity;
  for (const char* granularity : {"selective", "full"}) {
    if (now == "full" || now == granularity) continue;
    recomputations.push_back({fmt::format("activation_checkpointing.granularity={}", granularity)});
  }
  for (const std::int64_t size : {fit.micro_batch_size.value_or(0), std::int64_t{1}}) {
    if (size > 0 && size != config.batch.micro_batch_size && (size > 1 || sizes.size() == 1)) {
      sizes.push_back(micro_batch(size));
    }
  }
  const auto consider = [&](const Changes& set) {
    const auto candidate = changed(config, set);
    const auto peak = candidate ? planned_peak(*candidate, architecture) : std::nullopt;
    if (!peak || *peak > limit) return;
    fit.changes.push_back({set, *peak, candidate->world_size()});
  };
  // One thing changed, then two, then three.
  for (std::size_t many = 1; many <= 3 && fit.changes.empty(); ++many) {
    for (const Changes& stage : stages) {
      for (const Changes& recomputation : recomputations) {
        for (const Changes& size : sizes) {
          const auto count = static_cast<std::size_t>(!stage.empty()) +
                             static_cast<std::size_t>(!recomputation.empty()) +
                             static_cast<std::size_t>(!size.empty());
          if (count == many) consider(stage + recomputation + size);
        }
      }
    }
  }
  // More ranks, all else at its thriftiest.
  Changes thrifty{"runtime.ranks_per_node=null"};
  for (const auto* list : {&stages, &recomputations, &sizes}) {
    // Not every stage and size goes with the config.
    const auto last = std::find_if(list->rbegin(), list->rend(), [&](const Changes& set) {
      return changed(config, thrifty + set).has_value();
    });
    if (last != list->rend()) thrifty = thrifty + *last;
  }
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
  const auto gib = [](std::int64_t bytes) { return static_cast<double>(bytes) * 0x1p-30; };
  std::string text =
      fmt::format("memory  {:.3f} GiB a rank: the largest rank takes {:.3f} GiB, {}\n",
                  gib(fit.limit), gib(fit.peak_bytes), fit.fits() ? "it fits" : "too much");
  text += fit.micro_batch_size ? fmt::format("        largest micro_batch_size that fits: {}\n",
                                             *fit.micro_batch_size)
                               : std::string("        no micro_batch_size fits as it is\n");
  for (const FittingChange& change : fit.changes) {
    text += fmt::format("        {:.3f} GiB on {} ranks with --set {}\n", gib(change.peak_bytes),
                        change.world_size, fmt::join(change.set, " --set "));
  }
  if (!fit.fits() && fit.changes.empty()) {
    text += "        no ZeRO stage, recomputation, size or larger number of ranks tried fits\n";
  }
  return text;
}

}  // namespace trident
