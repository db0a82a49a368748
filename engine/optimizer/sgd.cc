// Stochastic gradient descent with momentum, as torch.optim.SGD but with decoupled weight decay.
#include "engine/optimizer/optimizer.h"
#include "kernels/optimizer.h"

namespace trident {
namespace {

class Sgd final : public UpdateRule {
 public:
  explicit Sgd(const OptimizerParams& params) : params_(params) {}
  std::vector<StateSpec> states(const ParameterSpec&) const override {
    if (params_.momentum > 0) return {{.name = "momentum_buffer"}};
    return {};
  }
  void update(Context& context, const std::vector<UpdatePart>& parts,
              const UpdateStep& step) const override {
    std::vector<SgdArgs> all;
    for (const UpdatePart& part : parts) {
      if (part.range.count == 0) continue;
      all.push_back({.weight = part.weight,
                     .gradient = part.gradient,
                     .momentum_buffer = part.state.empty() ? Tensor() : part.state[0],
                     .model_weight = part.model_weight,
                     .learning_rate = step.learning_rate * part.lr_mult,
                     .momentum = static_cast<float>(params_.momentum),
                     .weight_decay = static_cast<float>(part.decay(params_.weight_decay)),
                     .gradient_scale = step.gradient_scale,
                     .step = step.step});
    }
    sgd(context, all);
  }

 private:
  OptimizerParams params_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const OptimizerParams& params) {
  return std::make_unique<Sgd>(params);
}

}  // namespace trident
