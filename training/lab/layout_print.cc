// Found layouts for people and programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/units.h"
#include "training/lab/layout_search.h"
#include "training/lab/prediction_error.h"
#include "training/setup/from_config.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;

// What costs it most, beside products.
std::string reasons_of(const FoundLayout& plan) {
  std::vector<std::pair<double, std::string>> parts{{plan.recomputed, "computing again"},
                                                    {plan.waiting, "bubble"},
                                                    {plan.communication, "communication"},
                                                    {plan.kernels, "other kernels"}};
  std::sort(parts.begin(), parts.end(), std::greater<>());
  std::string text;
  for (const auto& [part, name] : parts) {
    if (part < 0.01) continue;
    text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", name, 100 * part);
  }
  return text;
}

std::string axes_of(const Config& config) {
  std::string text;
  for (const MeshAxis& axis : config.parallel.axes()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis.name, axis.size);
  }
  return text;
}

// Where stages have other numbers of layers.
std::string split_of(const Config& config) {
  const std::vector<std::int64_t>& split = config.pipeline.layer_split;
  const auto [least, most] = std::minmax_element(split.begin(), split.end());
  if (split.empty() || *most == *least) return "";
  if (split.size() <= 16) return fmt::format(", layers {}", fmt::join(split, "+"));
  return fmt::format(", {} to {} layers a stage", *least, *most);
}

std::string states_of(const Config& config) {
  std::string text = fmt::format("ZeRO {}", config.zero_optimization.stage);
  if (config.parallel.sequence_parallel) text += ", sequence parallel";
  const std::string& recompute = config.activation_checkpointing.granularity;
  if (recompute != "none") text += ", " + recompute + " recomputation";
  return text;
}

}  // namespace

Json layouts_json(const LayoutSearch& search, const LayoutRequest& request) {
  Json plans = Json::array();
  for (const FoundLayout& plan : search.plans) {
    const Config& c = plan.config;
    const double tokens = static_cast<double>(c.batch.global_batch_size) *
                          static_cast<double>(c.data.sequence_length);
    Json axes;
    for (const MeshAxis& axis : c.parallel.axes()) axes[axis.name] = axis.size;
    plans.push_back({{"ranks", c.world_size()},
                     {"step_seconds", plan.seconds},
                     {"estimated_seconds", plan.estimate},
                     {"tokens_per_second", tokens / plan.seconds},
                     {"peak_bytes", plan.peak_bytes},
                     {"mfu", plan.mfu},
                     {"bubble_ratio", plan.bubble_ratio},
                     {"axes", axes},
                     {"chunks", c.parallel.virtual_pipeline_model_parallel_size},
                     {"schedule", c.pipeline.schedule},
                     {"micro_batch_size", c.batch.micro_batch_size},
                     {"zero", c.zero_optimization.stage},
                     {"sequence_parallel", c.parallel.sequence_parallel},
                     {"recomputation", c.activation_checkpointing.granularity},
                     {"layer_split", c.pipeline.layer_split},
                     {"lost",
                      {{"computing_again", plan.recomputed},
                       {"bubble", plan.waiting},
                       {"communication", plan.communication},
                       {"other_kernels", plan.kernels}}},
                     {"on_front", plan.on_front},
                     {"set", plan.set},
                     {"config", Json::parse(plan.written)}});
  }
  return {{"prediction", true},
          {"machine", request.machine.name},
          {"error", error_json(request.machine)},
          {"memory_bytes", request.memory > 0 ? static_cast<double>(request.memory)
                                              : request.machine.device.memory},
          {"considered", search.considered},
          {"simulated", search.simulated},
          {"plans", plans},
          {"nothing_on", search.nothing_on},
          {"pruned", search.pruned}};
}

std::string layouts_text(const LayoutSearch& search, const LayoutRequest& request) {
  std::string text = fmt::format(
      "predictions for {}, {} a rank; {} considered, {} simulated whole\n{}\n\n",
      request.machine.name,
      bytes_text(request.memory > 0 ? static_cast<double>(request.memory)
                                    : request.machine.device.memory),
      counted(search.considered, "layout"), search.simulated, error_text(request.machine));
  std::int64_t ranks = 0;
  int number = 0;
  for (const FoundLayout& plan : search.plans) {
    const Config& c = plan.config;
    if (c.world_size() != ranks) {
      ranks = c.world_size();
      number = 0;
      text += counted(ranks, "rank") + "\n";
    }
    text += fmt::format(
        "{:>3}{} {:>9}  MFU {:>5}  {:>10}  {}; {}{}, micro-batch {}; {}\n"
        "      lost: {}\n",
        ++number, plan.on_front ? "*" : " ", seconds_text(plan.seconds), percent_text(plan.mfu),
        bytes_text(plan.peak_bytes), axes_of(c), c.pipeline.schedule,
        c.parallel.virtual_pipeline_model_parallel_size > 1
            ? fmt::format(" of {} chunks", c.parallel.virtual_pipeline_model_parallel_size)
            : "",
        c.batch.micro_batch_size, states_of(c) + split_of(c), reasons_of(plan));
  }
  for (const std::int64_t none : search.nothing_on) {
    text += counted(none, "rank") + ": nothing fits, or no layout divides\n";
  }
  text += "* nothing listed is better in time, memory and ranks at once\n\nleft out\n";
  std::vector<std::pair<std::int64_t, std::string>> pruned;
  for (const auto& [reason, count] : search.pruned) {
    if (count > 0) pruned.emplace_back(count, reason);
  }
  std::sort(pruned.begin(), pruned.end(), std::greater<>());
  for (const auto& [count, reason] : pruned) text += fmt::format("{:>8}  {}\n", count, reason);
  return text;
}

}  // namespace trident
