// A mixture of experts: a feed-forward sublayer of Block in which a router sends each token to a
// few of many experts, MLPs with a gated unit (Shazeer 2017). Each rank holds a part of the
// experts, and tokens go to the ranks that hold theirs (parallel/token_exchange.h). Collective over
// the ranks that share the layer and over those that exchange tokens.
//
// Letters: T rows of the micro-batch, t ranks that share a layer, H hidden, E experts, F their
// width, K experts a token.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/module.h"
#include "models/shared_expert.h"
#include "models/transformer.h"
#include "parallel/token_exchange.h"

namespace trident {

class Experts final : public Module {
 public:
  // Makes the parameters NAME.router.weight (E, H), NAME.experts.up (E, 2F, H), gate then up, and
  // NAME.experts.down (E, H, F), or with inputs first (E, H, 2F) and (E, F, H); with biases also
  // NAME.router.bias (E), NAME.experts.up_bias (E, 2F), NAME.experts.down_bias (E, H); with a
  // shared expert also its own (models/shared_expert.h); with biases that balance the buffer
  // NAME.router.expert_bias (E).
  Experts(const ParallelContext&, const TransformerShape&, const std::string& name,
          std::int64_t layer);
  // What the layers with experts report: tokens_per_expert, router_entropy, of the losses that the
  // shape asks for the balancing loss and z_loss, and sums for derive().
  static std::vector<Statistic> statistics(const ExpertsShape&);
  // Replaces those sums over a step of `tokens` tokens by dropped_tokens, the choices beyond the
  // experts' capacity, and with softmax routers by load_balancing_loss, transformers' own figure
  // without its factor (load_balancing_loss_func): E Σ f P over all layers and tokens together,
  // where f is the share of tokens that choose an expert and P its mean probability.
  static void derive(const ExpertsShape&, double tokens, StepStatistics&);
  std::vector<std::shared_ptr<Parameter>> parameters() const override;
  // The bias. Its "gradient" (E) i64 counts the tokens of each expert in the backwards since
  // the last update (engine/expert_bias.h).
  std::vector<std::shared_ptr<Parameter>> buffers() const override;
  // x (T or T/t, H) → (T or T/t, H), without dropout and residual.
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, SavedActivationsPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const override;

 private:
  struct Saved;
  // The router's weight in the type of its product.
  Tensor router_weight(Context&, const MicroBatch&) const;
  // Products with the experts' matrices: of rows with their inputs, and of gradients of results.
  void multiply(Context&, const MicroBatch&, const Weight&, const Tensor& x, const Tensor& y,
                const Saved&) const;
  void multiply_gradient(Context&, const MicroBatch&, const Weight&, const Tensor& grad_y,
                         const Tensor& grad_x, const Saved&) const;
  void add_gradient(Context&, const Weight&, const Tensor& grad_y, const Tensor& x,
                    const Saved&) const;
  // Whether this rank adds the biases of the down-projections: one of those that share an expert.
  bool adds_down_bias() const;
  // Whether the shared expert's work runs while rows are on their way.
  bool hides_exchange() const { return shared_ != nullptr && parallel_.exchange_ranks() > 1; }
  // This rank's share of x's rows.
  Tensor share(const Tensor& x) const;
  // Routes the rows of `own`, this rank's share of x.
  ExpertRows choose(Context&, const MicroBatch&, const Tensor& x, const Tensor& own, Saved&) const;
  // The choice without the pairs beyond the experts' capacity.
  Tensor within_capacity(Context&, const MicroBatch&, const Tensor& x, const Tensor& chosen) const;
  // Adds the losses of the router's choices to the batch's statistics, and makes their gradient.
  void balance(Context&, const MicroBatch&, const Tensor& x, Saved&) const;

  ParallelContext parallel_;
  ExpertsShape shape_;
  std::int64_t layer_;

  Weight router_, bias_, up_, down_;
  Weight router_bias_, up_bias_, down_bias_;
  std::unique_ptr<SharedExpert> shared_;
};

}  // namespace trident
