// The statistics of the routers in a step (models/statistics.h).
#pragma once

#include <vector>

#include "models/statistics.h"
#include "models/transformer.h"

namespace trident {

// The names under which a router adds to the step's sums, beside ExpertsShape::balancing_name().
namespace router_statistic {
inline constexpr auto tokens_per_expert = "tokens_per_expert", entropy = "router_entropy",
                      z_loss = "z_loss";
// For derive_router_statistics(): the pairs within the experts' capacity, and each expert's sum of
// probabilities.
inline constexpr auto kept_pairs = "kept_pairs", probability_sums = "probability_sums";
}  // namespace router_statistic

// Whether load_balancing_loss is reported: transformers has it of softmax routers alone.
inline bool reports_load_balancing_loss(const ExpertsShape& shape) {
  return shape.router.score == RouterScore::softmax;
}

// The statistics of layers with experts: tokens_per_expert, router_entropy, of the losses that the
// shape asks for the balancing loss and z_loss, and sums for derive_router_statistics().
std::vector<Statistic> router_statistics(const ExpertsShape&);

// Replaces those sums over a step of `tokens` tokens by dropped_tokens, the choices beyond the
// experts' capacity, and with softmax routers by load_balancing_loss, transformers' own figure
// without its factor (load_balancing_loss_func): E Σ f P over all layers and tokens together, where
// f is the share of tokens that choose an expert and P its mean probability.
void derive_router_statistics(const ExpertsShape&, double tokens, StepStatistics&);

}  // namespace trident
