// AdamW (Loshchilov & Hutter 2019).
#include "kernels/optimizer.h"
#include "training/optimizer.h"

namespace trident {
namespace {

class AdamW final : public UpdateRule {
 public:
  explicit AdamW(const OptimizerParams& params) : params_(params) {}
  int states() const override { return 2; }
  void update(Context& context, const UpdateArgs& args) const override {
    adamw(context, {.weight = args.weight,
                    .gradient = args.gradient,
                    .moment1 = args.state[0],
                    .moment2 = args.state[1],
                    .model_weight = args.model_weight,
                    .learning_rate = args.learning_rate,
                    .beta1 = static_cast<float>(params_.betas[0]),
                    .beta2 = static_cast<float>(params_.betas[1]),
                    .epsilon = static_cast<float>(params_.eps),
                    .weight_decay = args.decays ? static_cast<float>(params_.weight_decay) : 0.0f,
                    .gradient_scale = args.gradient_scale,
                    .step = args.step});
  }

 private:
  OptimizerParams params_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw(const OptimizerParams& params) {
  return std::make_unique<AdamW>(params);
}

}  // namespace trident
