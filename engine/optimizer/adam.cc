// Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019).
#include "engine/optimizer/optimizer.h"
#include "kernels/optimizer.h"

namespace trident {
namespace {

class Adam final : public UpdateRule {
 public:
  Adam(const OptimizerParams& params, bool decoupled) : params_(params), decoupled_(decoupled) {}
  std::vector<StateSpec> states(const ParameterSpec&) const override {
    return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
  }
  void update(Context& context, const std::vector<UpdatePart>& parts,
              const UpdateStep& step) const override {
    std::vector<AdamArgs> all;
    for (const UpdatePart& part : parts) {
      if (part.range.count == 0) continue;
      all.push_back({.weight = part.weight,
                     .gradient = part.gradient,
                     .moment1 = part.state[0],
                     .moment2 = part.state[1],
                     .model_weight = part.model_weight,
                     .learning_rate = step.learning_rate * part.lr_mult,
                     .beta1 = params_.betas[0],
                     .beta2 = params_.betas[1],
                     .epsilon = static_cast<float>(params_.eps),
                     .weight_decay = static_cast<float>(part.decay(params_.weight_decay)),
                     .decoupled = decoupled_,
                     .gradient_scale = step.gradient_scale,
                     .step = step.step});
    }
    adam(context, all);
  }

 private:
  OptimizerParams params_;
  bool decoupled_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adam(const OptimizerParams& params, bool decoupled) {
  return std::make_unique<Adam>(params, decoupled);
}

}  // namespace trident
