// A mixture of experts: a feed-forward sublayer of Block in which a router sends each token to a
// few of many experts, MLPs with a gated unit (Shazeer 2017). Each rank holds a part of the
// experts, and tokens go to the ranks that hold theirs (parallel/token_exchange.h). Collective over
// the ranks that share the layer and over those that exchange tokens.
//
// The parts: models/router.h, models/grouped_mlp.h, models/shared_expert.h.
//
// Letters: T rows of the micro-batch, t ranks that share a layer, H hidden, E experts, F their
// width, K experts a token.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/grouped_mlp.h"
#include "models/module.h"
#include "models/router.h"
#include "models/shared_expert.h"
#include "models/transformer.h"

namespace trident {

class Experts final : public Module {
 public:
  // Makes the parameters of a Router, NAME.router, and of a GroupedMlp, NAME.experts, and with a
  // shared expert its own.
  Experts(const ParallelContext&, const TransformerShape&, const std::string& name,
          std::int64_t layer);
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
  // Whether the shared expert's work runs while rows are on their way.
  bool hides_exchange() const { return shared_ != nullptr && parallel_.exchange_ranks() > 1; }
  // Whether the exchanges are asynchronous: where there is work to do meanwhile.
  Async exchange_async(const Context&) const;
  // This rank's share of x's rows.
  Tensor share(const Tensor& x) const;

  ParallelContext parallel_;
  std::int64_t topk_;  // K
  Router router_;
  GroupedMlp mlp_;
  std::unique_ptr<SharedExpert> shared_;
};

}  // namespace trident
