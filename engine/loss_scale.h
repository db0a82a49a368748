// The loss scale, which keeps fp16 gradients above the smallest and below the largest numbers of
// that format (Micikevicius 2018). It adapts as in DeepSpeed: it halves at an overflow once
// `hysteresis` overflows have come, and doubles after a window of steps without an overflow.
#pragma once

#include <cstdint>

#include "parallel/state.h"
#include "settings/config.h"

namespace trident {

class LossScale {
 public:
  // The scale is 1 if the dtype is not fp16, and constant if the config gives a number.
  explicit LossScale(const PrecisionConfig&);

  double value() const { return value_; }
  // Whether a step with a non-finite loss or gradient is only a sign of too large a scale: true
  // while the scale can still fall.
  bool excuses_overflow() const { return dynamic_ && value_ > minimum_; }
  // Call it after each step, with the same value on all ranks.
  void update(bool overflow);
  void append_state(State& into);  // adds the numbers that a resumed run needs
  // Call it after that state has been read. Where the config differs from the saved run's, the
  // config's values apply.
  void restored();

 private:
  bool dynamic_ = false;
  double value_ = 1, fixed_ = 1, minimum_ = 1;
  std::int64_t window_ = 1, hysteresis_ = 1;
  std::int64_t overflows_left_ = 1;  // until the scale halves
  std::int64_t clean_ = 0;           // steps since the last overflow or doubling
};

}  // namespace trident
