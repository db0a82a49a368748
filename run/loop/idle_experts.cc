#include "run/loop/idle_experts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace trident {

std::string IdleExperts::next(const StepStatistics& step) {
  const auto found = step.statistics.find("tokens_per_expert");
  if (found == step.statistics.end()) return "";
  constexpr std::size_t most = 12;  // experts that a warning names
  std::vector<std::string> idle;
  layers_.resize(found->second.size());
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const std::vector<double>& counts = found->second[layer];
    const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
    layers_[layer].resize(counts.size());
    for (std::size_t e = 0; e < counts.size(); ++e) {
      Expert& expert = layers_[layer][e];
      if (counts[e] > 0) {
        expert = {};
        continue;
      }
      ++expert.iterations;
      expert.share += total / static_cast<double>(counts.size());
      if (expert.is_idle || expert.iterations < least_iterations || expert.share < least_tokens) {
        continue;
      }
      expert.is_idle = true;
      idle.push_back(fmt::format("{} of layer {}", e, layer));
    }
  }
  if (idle.empty()) return "";
  const std::size_t more = idle.size() - std::min(idle.size(), most);
  idle.resize(idle.size() - more);
  return fmt::format(
      "warning: experts have had no token for {} iterations or more: {}{}; a larger "
      "model.moe.aux_loss_coeff or router_bias_update_rate spreads tokens",
      least_iterations, fmt::join(idle, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace trident
