#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "training/plan/plan.h"

namespace trident {
namespace {

std::string in_words(std::int64_t count) {
  const auto value = static_cast<double>(count);
  return count < 1'000'000'000 ? fmt::format("{:.3f} million", value * 1e-6)
                               : fmt::format("{:.3f} billion", value * 1e-9);
}

}  // namespace

nlohmann::ordered_json plan_json(const Plan& plan) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const PlanRank& rank : plan.ranks) {
    nlohmann::ordered_json& one =
        ranks.emplace_back(nlohmann::ordered_json{{"rank", rank.rank}, {"count", rank.count}});
    for (std::size_t i = 0; i < plan.axes.size(); ++i) one[plan.axes[i]] = rank.at[i];
    one["layers"] = rank.layers;
    one["parameters"] = rank.parameters;
    one["bytes"] = rank.bytes;
    one["peak_bytes"] = rank.peak_bytes;
    one["bytes_sent"] = rank.bytes_sent;
  }
  return {{"world_size", plan.world_size},
          {"parameters", plan.parameters},
          {"flops_per_step", plan.flops_per_step},
          {"bubble_ratio", plan.bubble_ratio},
          {"layer_split", plan.layer_split},
          {"imbalance", plan.imbalance},
          {"bubble_ratio_of_split", plan.bubble_ratio_of_split},
          {"ranks", ranks}};
}

std::string plan_text(const Plan& plan) {
  std::string text = fmt::format(
      "{} ranks, {} parameters, {:.4g} TFLOP a step, predicted bubble {:.1f}%\n", plan.world_size,
      in_words(plan.parameters), plan.flops_per_step * 1e-12, 100 * plan.bubble_ratio);
  if (plan.layer_split.size() > 1) {
    text += fmt::format(
        "layers by stage {}: the busiest rank has {:.1f}% more FLOPs than the mean, bubble "
        "{:.1f}%\n",
        fmt::join(plan.layer_split, " "), 100 * plan.imbalance, 100 * plan.bubble_ratio_of_split);
  }
  // Peaks by category in MB; they need not fall together, so their sum is not the peak.
  text += fmt::format("{:>6} {:>5}", "rank", "count");
  for (const std::string& axis : plan.axes) text += fmt::format(" {:>4}", axis);
  text += fmt::format(" {:>6} {:>13}", "layers", "parameters");
  for (const char* name : {"weights", "gradients", "optimizer", "activ.", "commun.", "workspace",
                           "staging", "library", "peak MB"}) {
    text += fmt::format(" {:>10}", name);
  }
  text += "  sent a step (MB)\n";
  const auto mb = [](std::int64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  for (const PlanRank& rank : plan.ranks) {
    text += fmt::format("{:>6} {:>5}", rank.rank, rank.count);
    for (const int place : rank.at) text += fmt::format(" {:>4}", place);
    text += fmt::format(" {:>6} {:>13}", rank.layers, rank.parameters);
    for (const char* name : {"parameter", "gradient", "optimizer", "activation", "communication",
                             "workspace", "staging", "library"}) {
      text += fmt::format(" {:>10.2f}", mb(rank.bytes.at(name)));
    }
    text += fmt::format(" {:>10.2f} ", mb(rank.peak_bytes));
    for (const auto& [group, bytes] : rank.bytes_sent) {
      if (bytes > 0) text += fmt::format(" {} {:.3g}", group, mb(bytes));
    }
    text += "\n";
  }
  return text;
}

}  // namespace trident
