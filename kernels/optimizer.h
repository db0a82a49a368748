// Updates of flat ranges of parameters, n elements. Weights and state are fp32; gradients fp32,
// bf16 or fp16; model_weight is an optional bf16 or fp16 copy, rewritten from weight.
// gradient_scale multiplies the gradient first (clipping, loss scaling).
#pragma once

#include <cstdint>

#include "core/context.h"

namespace trident {

// Adam (Kingma & Ba 2015) as torch.optim.Adam, or with `decoupled` decay AdamW (Loshchilov & Hutter
// 2019) as torch.optim.AdamW: w -= lr·decay·w; Adam adds decay·w to the gradient instead. Then
// w -= lr · m̂ / (sqrt(v̂) + epsilon). One pass over memory.
struct AdamArgs {
  Tensor weight, gradient, moment1, moment2, model_weight;
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool decoupled = true;
  float gradient_scale = 1;
  std::int64_t step = 1;  // from 1, for the bias correction
};
void adam(Context&, const AdamArgs&);

// SGD as torch.optim.SGD: buffer := momentum·buffer + g (the first step sets it to g), g including
// no decay; w -= lr·decay·w first (decoupled), then w -= lr · (momentum ? buffer : g). One pass.
struct SgdArgs {
  Tensor weight, gradient, momentum_buffer;  // buffer undefined without momentum
  Tensor model_weight;
  double learning_rate = 0, momentum = 0, weight_decay = 0;
  float gradient_scale = 1;
  std::int64_t step = 1;
};
void sgd(Context&, const SgdArgs&);

// Adafactor (Shazeer & Stern 2018) as torch.optim.Adafactor with its defaults: the second moment of
// a matrix (R, C) is the outer product of its means over columns and over rows; that of a vector is
// kept whole. An update needs sums over the whole parameter, so it has four parts, between which
// its owner adds the sums of those who hold the other elements. Elements [begin, begin + n) of the
// flat matrix are here.
struct AdafactorPart {
  Tensor weight, gradient, model_weight;  // (n)
  std::int64_t begin = 0;
  std::int64_t columns = 1;  // C
  float gradient_scale = 1;
};
// Adds to rows (R) and columns (C), f64, the sums of the squares of this part's gradients
// (undefined for a vector), and to weights (1) f64 that of its weights. One pass.
struct AdafactorSquares {
  AdafactorPart part;
  Tensor rows, columns, weights;
};
void adafactor_squares(Context&, const AdafactorSquares&);
// Of a matrix: the state, means over columns (R) and over rows (C), moves by `rate` towards the
// sums over the counts (real extents: the local tensors may be longer, or cut). factors (R) fp32 :=
// row state / mean of the row state or, where `mean_of_rows` is false, of the column state (the two
// means are equal, but one may be cut).
struct AdafactorFactors {
  Tensor row_sums, column_sums;  // f64
  Tensor row_state, column_state, factors;
  std::int64_t row_count = 1, column_count = 1;  // elements of a column, of a row
  bool mean_of_rows = true;
  float rate = 1;
};
void adafactor_factors(Context&, const AdafactorFactors&);
// size (1) f64: sum of the squares of gradient / sqrt(variance); the variance of element (r, c) is
// factors[r] · column_state[c]. For a vector `factors` is undefined and column_state its state (n),
// which first moves by `rate` towards the squares of the gradients. One pass.
struct AdafactorSize {
  AdafactorPart part;
  Tensor factors, column_state, size;
  float rate = 1;
};
void adafactor_size(Context&, const AdafactorSize&);
// w -= lr·decay·w, then w -= rate · max(1e-3, rms(weights)) · direction / max(1, rms(direction)).
// sizes (2) f64: the sums of the squares of the directions and of the weights, over all `count`
// elements of the parameter. One pass.
struct AdafactorUpdate {
  AdafactorPart part;
  Tensor factors, column_state, sizes;
  std::int64_t count = 1;
  double learning_rate = 0, weight_decay = 0;
  std::int64_t step = 1;
};
void adafactor_update(Context&, const AdafactorUpdate&);

}  // namespace trident
