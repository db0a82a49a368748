// Stochastic gradient descent with momentum, as torch.optim.SGD, weight decay decoupled.
#include "kernels/optimizer.h"
#include "training/optimizer.h"

namespace trident {
namespace {

class Sgd final : public UpdateRule {
 public:
  explicit Sgd(const OptimizerParams& params) : params_(params) {}
  int states() const override { return params_.momentum > 0 ? 1 : 0; }
  void update(Context& context, const UpdateArgs& args) const override {
    sgd(context, {.weight = args.weight,
                  .gradient = args.gradient,
                  .momentum_buffer = args.state.empty() ? Tensor() : args.state[0],
                  .model_weight = args.model_weight,
                  .learning_rate = args.learning_rate,
                  .momentum = static_cast<float>(params_.momentum),
                  .weight_decay = args.decays ? static_cast<float>(params_.weight_decay) : 0.0f,
                  .gradient_scale = args.gradient_scale,
                  .step = args.step});
  }

 private:
  OptimizerParams params_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const OptimizerParams& params) {
  return std::make_unique<Sgd>(params);
}

}  // namespace trident
