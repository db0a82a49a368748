// One pass over memory that updates a flat range of parameters. n elements.
#pragma once

#include <cstdint>

#include "core/context.h"

namespace trident {

// AdamW (Loshchilov & Hutter 2019) as torch.optim.AdamW: w -= lr·decay·w, then
// w -= lr · m̂ / (sqrt(v̂) + epsilon). gradient is multiplied by gradient_scale first (clipping).
struct AdamWArgs {
  Tensor weight, gradient, moment1, moment2;  // fp32
  Tensor model_weight;                        // optional bf16 copy, rewritten from weight
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  float gradient_scale = 1;
  std::int64_t step = 1;  // from 1, for the bias correction
};
void adamw(Context&, const AdamWArgs&);

// SGD as torch.optim.SGD: buffer := momentum·buffer + g (the first step sets it to g), g including
// no decay; w -= lr·decay·w first (decoupled), then w -= lr · (momentum ? buffer : g).
struct SgdArgs {
  Tensor weight, gradient, momentum_buffer;  // fp32; buffer undefined without momentum
  Tensor model_weight;
  double learning_rate = 0, momentum = 0, weight_decay = 0;
  float gradient_scale = 1;
  std::int64_t step = 1;
};
void sgd(Context&, const SgdArgs&);

}  // namespace trident
