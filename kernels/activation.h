// Element-wise activations of the MLP; fp32 or bf16.
#pragma once

#include "core/context.h"

namespace trident {

// GELU, tanh form (Hendrycks & Gimpel 2016, as GPT-2): 0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x³))).
void gelu_forward(Context&, const Tensor& x, const Tensor& y);
// grad_x may be grad_y's memory.
void gelu_backward(Context&, const Tensor& x, const Tensor& grad_y, const Tensor& grad_x);

// SwiGLU (Shazeer 2020): x (T, 2F) holds gate then up in each row; y (T, F) = silu(gate) * up.
void swiglu_forward(Context&, const Tensor& x, const Tensor& y);
void swiglu_backward(Context&, const Tensor& x, const Tensor& grad_y, const Tensor& grad_x);

}  // namespace trident
