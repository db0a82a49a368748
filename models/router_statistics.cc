#include "models/router_statistics.h"

#include <numeric>

#include "kernels/routing.h"

namespace trident {

std::vector<Statistic> router_statistics(const ExpertsShape& shape) {
  using namespace router_statistic;
  std::vector<Statistic> list;
  for (const std::int64_t layer : shape.layers) {
    list.push_back({tokens_per_expert, StatisticKind::count, layer, shape.router.experts});
    list.push_back({entropy, StatisticKind::mean, layer});
    if (shape.capacity_factor > 0) list.push_back({kept_pairs, StatisticKind::count, layer});
    if (reports_load_balancing_loss(shape)) {
      list.push_back({probability_sums, StatisticKind::count, layer, shape.router.experts});
    }
    if (shape.balancing_loss > 0) {
      list.push_back({shape.balancing_name(), StatisticKind::auxiliary_loss, layer});
    }
    if (shape.z_loss > 0) list.push_back({z_loss, StatisticKind::auxiliary_loss, layer});
  }
  return list;
}

void derive_router_statistics(const ExpertsShape& shape, double tokens, StepStatistics& all) {
  using namespace router_statistic;
  auto& lists = all.statistics;
  const auto counts = lists.find(tokens_per_expert);
  if (counts == lists.end()) return;
  if (auto kept = lists.extract(kept_pairs)) {
    auto& dropped = lists["dropped_tokens"];
    for (const std::vector<double>& layer : kept.mapped()) {
      const std::vector<double>& chosen = counts->second[dropped.size()];
      dropped.emplace_back(layer);
      for (double& pairs : dropped.back()) {
        pairs = std::accumulate(chosen.begin(), chosen.end(), 0.0) - pairs;
      }
    }
  }
  if (const auto sums = lists.extract(probability_sums)) {
    const auto experts = static_cast<std::size_t>(shape.router.experts);
    std::vector<double> chosen(experts), probabilities(experts);
    for (const std::int64_t layer : shape.layers) {
      for (std::size_t e = 0; e < experts; ++e) {
        chosen[e] += counts->second[static_cast<std::size_t>(layer)][e];
        probabilities[e] += sums.mapped()[static_cast<std::size_t>(layer)][e] * probability_unit;
      }
    }
    const double rows = tokens * static_cast<double>(shape.layers.size());
    const double sum = std::inner_product(chosen.begin(), chosen.end(), probabilities.begin(), 0.0);
    lists["load_balancing_loss"] = {{static_cast<double>(experts) * sum / (rows * rows)}};
  }
}

}  // namespace trident
