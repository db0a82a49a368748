// Element-wise activations of the MLP: GELU and SwiGLU, with their gradients.
//
// All tensors of a call have the same dtype: fp32, bf16 or fp16. Each function checks its
// arguments, enqueues the work on the context's stream and returns; see kernels/backend.h. A shape
// or dtype that does not fit throws Error.
#pragma once

#include "core/context.h"

namespace trident {

// GELU in its tanh form, as in GPT-2 (Hendrycks & Gimpel 2016):
// y = 0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x³))).
// x and y have the same number of elements.
void gelu_forward(Context&, const Tensor& x, const Tensor& y);
// grad_x may share grad_y's memory.
void gelu_backward(Context&, const Tensor& x, const Tensor& grad_y, const Tensor& grad_x);

// SwiGLU (Shazeer 2020): y (T, F) = silu(gate) * up. Each row of x (T, 2F) holds the gate, then the
// up projection.
void swiglu_forward(Context&, const Tensor& x, const Tensor& y);
void swiglu_backward(Context&, const Tensor& x, const Tensor& grad_y, const Tensor& grad_x);

}  // namespace trident
