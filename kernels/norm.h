// LayerNorm and RMSNorm over rows. T rows, H columns; x, y, gradients and weights of one dtype
// (fp32, bf16 or fp16), statistics fp32; weight gradients fp32, bf16 or fp16.
#pragma once

#include "core/context.h"

namespace trident {

// bias undefined: RMSNorm (Zhang & Sennrich 2019) y = x / rms(x) * weight;
// otherwise LayerNorm (Ba 2016) y = (x - mean) / sqrt(var + epsilon) * weight + bias.
struct NormArgs {
  Tensor x, weight, bias;  // (T, H), (H), (H)
  Tensor y;                // (T, H)
  Tensor mean, rstd;       // (T) fp32, saved for backward; mean undefined for RMSNorm
  float epsilon = 1e-5f;
};
void norm_forward(Context&, const NormArgs&);

struct NormBackwardArgs {
  Tensor grad_y, x, weight;  // (T, H), (T, H), (H)
  Tensor mean, rstd;         // (T); mean undefined for RMSNorm
  Tensor grad_x;             // (T, H); may be grad_y's memory
  Tensor residual_grad;      // (T, H) optional, added to grad_x; may be grad_x's memory
};
void norm_backward_input(Context&, const NormBackwardArgs&);

struct NormWeightArgs {
  Tensor grad_y, x;               // (T, H)
  Tensor mean, rstd;              // (T); mean undefined for RMSNorm
  Tensor grad_weight, grad_bias;  // (H), added to; grad_bias undefined for RMSNorm
};
void norm_backward_weight(Context&, const NormWeightArgs&);

}  // namespace trident
