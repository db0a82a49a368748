#include "engine/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace trident {

LossScale::LossScale(const PrecisionConfig& config)
    : minimum_(config.min_loss_scale),
      window_(config.loss_scale_window),
      hysteresis_(config.hysteresis),
      overflows_left_(config.hysteresis) {
  if (config.dtype != "fp16") return;
  dynamic_ = config.loss_scale == 0;
  fixed_ = dynamic_ ? 1 : config.loss_scale;
  value_ = dynamic_ ? std::ldexp(1.0, static_cast<int>(config.initial_scale_power)) : fixed_;
}

void LossScale::update(bool overflow) {
  if (!dynamic_) return;
  if (overflow) {
    clean_ = 0;
    if (overflows_left_ > 1) {
      --overflows_left_;
    } else {
      value_ = std::max(value_ / 2, minimum_);
    }
  } else if (++clean_ >= window_) {
    clean_ = 0;
    overflows_left_ = hysteresis_;
    value_ *= 2;
  }
}

void LossScale::append_state(State& into) {
  into.numbers.push_back({"loss_scale.value", &value_, 0x1p-126, 0x1p127});
  into.numbers.push_back({"loss_scale.overflows_left", &overflows_left_, 1});
  into.numbers.push_back({"loss_scale.clean_steps", &clean_});
}

void LossScale::restored() {
  if (!dynamic_) value_ = fixed_;
  overflows_left_ = std::min(overflows_left_, hysteresis_);
}

}  // namespace trident
