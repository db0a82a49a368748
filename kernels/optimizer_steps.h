// The constants of an optimizer's step, computed once for all elements and used by the loops of
// every backend.
#pragma once

namespace trident {

struct AdamArgs;
struct SgdArgs;

struct AdamStep {
  float gradient_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size, inverse_root_correction2, epsilon;
  float decay_in_gradient;  // added to the gradient, times the weight
};
AdamStep adam_step(const AdamArgs&);

struct SgdStep {
  float gradient_scale, decay, momentum, learning_rate;
  bool first;
};
SgdStep sgd_step(const SgdArgs&);

}  // namespace trident
