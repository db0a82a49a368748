// An exponential moving average of the weights in addition to any update rule, as
// torch.optim.swa_utils' AveragedModel with get_ema_multi_avg_fn. The first update copies the
// weights. Each later update moves the average by 1 - decay of its distance from the weights.
#include <utility>

#include "engine/optimizer/optimizer.h"
#include "kernels/elementwise.h"

namespace trident {
namespace {

class MovingAverage final : public UpdateRule {
 public:
  MovingAverage(std::unique_ptr<UpdateRule> rule, double decay)
      : rule_(std::move(rule)), decay_(decay) {}

  std::vector<StateSpec> states(const ParameterSpec& spec) const override {
    std::vector<StateSpec> states = rule_->states(spec);
    states.push_back({.name = average_name});
    return states;
  }

  void update(Context& context, const std::vector<UpdatePart>& parts,
              const UpdateStep& step) const override {
    std::vector<UpdatePart> own = parts;
    for (UpdatePart& part : own) part.state.pop_back();
    rule_->update(context, own, step);
    for (const UpdatePart& part : parts) {
      if (part.range.count == 0) continue;
      const Tensor& average = part.state.back();
      if (step.step == 1) {
        copy(context, part.weight, average);
      } else {
        lerp(context, average, part.weight, static_cast<float>(1 - decay_));
      }
    }
  }

 private:
  std::unique_ptr<UpdateRule> rule_;
  double decay_;
};

}  // namespace

std::unique_ptr<UpdateRule> with_average(std::unique_ptr<UpdateRule> rule, double decay) {
  return std::make_unique<MovingAverage>(std::move(rule), decay);
}

}  // namespace trident
