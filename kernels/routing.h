// The router of a mixture of experts: which experts a token takes, and with which weights.
//
// Letters: T tokens, E experts, K experts that a token takes, B samples of S positions. A call may
// have some of a micro-batch's B·S rows: token t is row first_row + t. Each function checks its
// arguments (Error if one does not fit), enqueues the work on the context's stream and returns; see
// kernels/backend.h.
#pragma once

#include <cstdint>

#include "core/context.h"

namespace trident {

enum class RouterScore : std::uint8_t {
  softmax,  // over the experts
  sigmoid,  // of each expert (DeepSeek-V3)
};

// A token takes the K experts of the largest score, or of the largest score plus bias. Among equal
// ones the expert with the lowest number comes first. Its weights are the scores of the experts
// that it takes, without bias, times `scaling`.
struct RouterShape {
  std::int64_t experts = 0, topk = 0;
  RouterScore score = RouterScore::softmax;
  bool normalized = false;  // weights are divided by their sum, then scaled
  float scaling = 1;
  // With groups > 1 the experts form that many equal groups, in order. A token takes experts of the
  // `group_topk` groups whose two largest scores plus biases have the largest sum (DeepSeek-V3).
  std::int64_t groups = 1, group_topk = 1;

  // The most experts that a token can choose from.
  std::int64_t candidates() const { return groups > 1 ? experts / groups * group_topk : experts; }
};

struct RouteArgs {
  RouterShape shape;
  Tensor logits;   // (T, E) fp32
  Tensor bias;     // (E) fp32, optional: counts for the choice alone
  Tensor experts;  // (T, K) i32, ascending in each row
  Tensor weights;  // (T, K) fp32, in the order of `experts`
};
void route(Context&, const RouteArgs&);

struct RouteBackwardArgs {
  RouterShape shape;
  Tensor logits, experts;  // as in route()
  Tensor grad_weights;     // (T, K) fp32
  // (B, E) fp32, optional: the gradient of each token's probability of an expert, equal for all
  // tokens of a sample. The probabilities are the scores, divided by their sum over all experts.
  Tensor grad_probabilities;
  std::int64_t sequence = 0, first_row = 0;  // S; read with grad_probabilities alone
  float grad_square = 0;  // of the square of each token's log-sum-exp of logits (the z-loss)
  Tensor grad_logits;     // (T, E) fp32
};
void route_backward(Context&, const RouteBackwardArgs&);

// The unit of sums of probabilities as integers, which don't depend on the order of additions.
inline constexpr double probability_unit = 0x1p-32;

// Sums over the tokens of each sample, from which balancing losses are made.
struct RoutingSumsArgs {
  RouterShape shape;
  Tensor logits, experts;  // (T, E), (T, K), as in route()
  Tensor counts;           // (B, E) i64: tokens that take the expert
  Tensor probabilities;    // (B, E) fp64: sums of the probabilities (RouteBackwardArgs)
  Tensor squares;          // (T) fp32: the squares of the log-sum-exps
  // Optional outputs for reports: the entropy of each token's probabilities in nats (T) fp32, and
  // the sums of the samples' probabilities (E) i64, each in the nearest number of probability_unit.
  Tensor entropies, reported;
  std::int64_t sequence = 0, first_row = 0;  // S
};
void routing_sums(Context&, const RoutingSumsArgs&);

// The balancing loss of each sample, and its gradient by the probability of each of its tokens.
struct BalanceArgs {
  Tensor counts, probabilities;  // (B, E), as in routing_sums(), over all tokens of the samples
  double factor = 0;
  Tensor shares;  // (B, E) fp32 = factor · counts
  Tensor losses;  // (B) fp64 = the sums over the experts of shares · probabilities
};
void balance(Context&, const BalanceArgs&);

// Moves the bias of each expert by `rate` towards balance: b += rate · sign(mean − count), where
// sign(0) = 0 (Wang 2024; DeepSeek-V3).
struct UpdateExpertBiasArgs {
  Tensor counts;  // (E) i64: tokens that took the expert
  Tensor bias;    // (E) fp32
  float rate = 0;
};
void update_expert_bias(Context&, const UpdateExpertBiasArgs&);

}  // namespace trident
