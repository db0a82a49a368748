// The router of a mixture of experts (models/experts.h). A linear layer scores each token for every
// expert, the token goes to the K best (kernels/routing.h), and the losses and biases that balance
// the experts' load, and their capacity, are computed from the choices. Collective over the
// ranks that share the layer, each of which routes its own share of the rows.
//
// Letters: T' rows that this rank routes, H hidden, E experts, K experts a token, B samples.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/module.h"
#include "models/transformer.h"
#include "parallel/token_exchange.h"

namespace trident {

class Router {
 public:
  struct Saved {
    Tensor x;                        // (T', H)
    std::int64_t first_row = 0;      // of x, within the micro-batch
    Tensor logits, chosen, weights;  // (T', E), (T', K) i32, (T', K)
    Tensor shares;                   // (B, E), with a balancing loss; (1, E) for a micro-batch
    Tensor counts;                   // (1 or B, E) i64: tokens of each expert
    Tensor grad_logits;              // (T', E)
  };

  // Makes the parameter NAME.weight (E, H), with biases NAME.bias (E), and with biases that balance
  // the buffer NAME.expert_bias (E).
  Router(const ParallelContext&, const TransformerShape&, const std::string& name,
         std::int64_t layer);
  std::vector<std::shared_ptr<Parameter>> parameters() const;
  // As Experts::buffers().
  std::vector<std::shared_ptr<Parameter>> buffers() const;

  // Chooses experts for the rows x (T', H) and returns the pairs that these take; saved.weights are
  // the weights of all pairs. Adds the layer's losses and statistics to the batch's.
  ExpertRows forward(Context&, const MicroBatch&, const Tensor& x, std::int64_t first_row,
                     Saved&) const;
  // grad_x (T', H) += the gradient that reaches x through the weights, whose own is
  // grad_weights (T'·K, 1), and through the losses.
  void backward_input(Context&, const MicroBatch&, const Tensor& grad_weights, const Tensor& grad_x,
                      Saved&) const;
  // Frees the tensors that backward_weight doesn't need.
  static void release(Saved&);
  void backward_weight(Context&, const Saved&) const;

 private:
  struct Sums;
  // The weight in the type of its product.
  Tensor product_weight(Context&, const MicroBatch&) const;
  void score(Context&, const MicroBatch&, Saved&) const;
  ExpertRows choose(Context&, const MicroBatch&, Saved&) const;
  // The choice without the pairs beyond the experts' capacity.
  Tensor within_capacity(Context&, const MicroBatch&, const Saved&) const;
  // The same where other ranks have other pieces of the samples.
  Tensor within_capacity_of_pieces(Context&, const MicroBatch&, const Saved&) const;
  // The number of tokens that are balanced together.
  std::int64_t balanced_tokens(const MicroBatch&) const;
  // Adds the losses of the choices to the batch's statistics, and makes their gradient.
  void add_losses(Context&, const MicroBatch&, Saved&) const;
  Sums sum(Context&, const MicroBatch&, const Saved&) const;
  void report(Context&, const MicroBatch&, const Sums&) const;
  void add_balancing_loss(Context&, const MicroBatch&, const Sums&, Saved&) const;

  ParallelContext parallel_;
  ExpertsShape shape_;
  std::int64_t layer_;
  Weight weight_, bias_;
  Weight expert_bias_;
};

}  // namespace trident
