// The factor of the loss that keeps fp16 gradients above the smallest and below the largest numbers
// of that format (Micikevicius 2018). Adapted as DeepSpeed does: it halves at an overflow once
// `hysteresis` of them have come, and doubles after a window of steps without one.
#pragma once

#include <cstdint>

#include "parallel/state.h"
#include "settings/config.h"

namespace trident {

class LossScale {
 public:
  // Stays 1 where the dtype is not fp16, and fixed where the config gives a number.
  explicit LossScale(const PrecisionConfig&);

  double value() const { return value_; }
  // A step without finite loss and gradients is not a fault of the training while the scale can
  // still fall.
  bool excuses_overflow() const { return dynamic_ && value_ > minimum_; }
  // After each step; the same on all ranks.
  void update(bool overflow);
  void append_state(State& into);  // adds what it goes on from
  // That has been read: what this config says otherwise than the run that saved it holds.
  void restored();

 private:
  bool dynamic_ = false;
  double value_ = 1, fixed_ = 1, minimum_ = 1;
  std::int64_t window_ = 1, hysteresis_ = 1;
  std::int64_t overflows_left_ = 1;  // until the scale halves
  std::int64_t clean_ = 0;           // steps since the last overflow or doubling
};

}  // namespace trident
