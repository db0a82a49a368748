// Optimizer updates of flat ranges of parameters, n elements each.
//
// Weights and optimizer state are fp32; gradients are fp32, bf16 or fp16. model_weight is an
// optional bf16 or fp16 copy of the weights, which each update rewrites. gradient_scale multiplies
// the gradient first (clipping, loss scaling). Each function checks its arguments (Error if one
// does not fit), enqueues the work on the context's stream and returns; see kernels/backend.h.
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"

namespace trident {

// Adam (Kingma & Ba 2015) as in torch.optim.Adam, or with `decoupled` decay AdamW (Loshchilov &
// Hutter 2019) as in torch.optim.AdamW. AdamW first does w -= lr·decay·w; Adam adds decay·w to the
// gradient instead. Then w -= lr · m̂ / (sqrt(v̂) + epsilon). One pass over memory.
struct AdamArgs {
  Tensor weight, gradient, moment1, moment2, model_weight;
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool decoupled = true;
  float gradient_scale = 1;
  std::int64_t step = 1;  // counted from 1, for the bias correction
};
void adam(Context&, const AdamArgs&);
// Updates each of `all`; a GPU does it in few launches.
void adam(Context&, const std::vector<AdamArgs>& all);

// SGD as in torch.optim.SGD, but with decoupled decay: w -= lr·decay·w first. Then buffer :=
// momentum·buffer + g (the first step sets it to g), where g does not include the decay, and w -=
// lr · (momentum ? buffer : g). One pass over memory.
struct SgdArgs {
  Tensor weight, gradient, momentum_buffer;  // momentum_buffer: undefined without momentum
  Tensor model_weight;
  double learning_rate = 0, momentum = 0, weight_decay = 0;
  float gradient_scale = 1;
  std::int64_t step = 1;
};
void sgd(Context&, const SgdArgs&);
void sgd(Context&, const std::vector<SgdArgs>& all);

// Adafactor (Shazeer & Stern 2018) as torch.optim.Adafactor with its defaults. The second moment of
// a matrix (R, C) is the outer product of its means over columns and over rows; a vector keeps the
// full second moment. An update needs sums over the complete parameter. It therefore has four
// parts, and between the parts the caller reduces the sums over the ranks that share the parameter.
// This rank holds elements [begin, begin + n) of the flat matrix.
struct AdafactorPart {
  Tensor weight, gradient, model_weight;  // (n)
  std::int64_t begin = 0;
  std::int64_t columns = 1;  // C
  float gradient_scale = 1;
};
// Adds the sums of the squares of this part's gradients to rows (R) and columns (C), f64 (both
// undefined for a vector). Adds the sum of the squares of its weights to weights (1), f64. One pass
// over memory.
struct AdafactorSquares {
  AdafactorPart part;
  Tensor rows, columns, weights;
};
void adafactor_squares(Context&, const AdafactorSquares&);
// For a matrix. Moves the state, which is the means over columns (R) and over rows (C), by `rate`
// towards the sums divided by the counts. The counts are the real extents, because the local
// tensors may be padded or sharded. Then factors (R) fp32 := row state / mean of the row state, or
// / mean of the column state if `mean_of_rows` is false. The two means are equal, but one of the
// states may be sharded.
struct AdafactorFactors {
  Tensor row_sums, column_sums;  // f64
  Tensor row_state, column_state, factors;
  std::int64_t row_count = 1, column_count = 1;  // elements in a column, in a row
  bool mean_of_rows = true;
  float rate = 1;
};
void adafactor_factors(Context&, const AdafactorFactors&);
// Adds to size (1) f64 the sum of the squares of gradient / sqrt(variance). The variance of element
// (r, c) is factors[r] · column_state[c]. For a vector `factors` is undefined and column_state (n)
// is its second moment, which first moves by `rate` towards the squared gradients. One pass over
// memory.
struct AdafactorSize {
  AdafactorPart part;
  Tensor factors, column_state, size;
  float rate = 1;
};
void adafactor_size(Context&, const AdafactorSize&);
// w -= lr·decay·w, then w -= rate · max(1e-3, rms(weights)) · direction / max(1, rms(direction)),
// where rate is min(lr, 1/sqrt(step)). sizes (2) f64 holds the sums of the squares of the
// directions and of the weights, over all `count` elements of the parameter. One pass over memory.
struct AdafactorUpdate {
  AdafactorPart part;
  Tensor factors, column_state, sizes;
  std::int64_t count = 1;
  double learning_rate = 0, weight_decay = 0;
  std::int64_t step = 1;
};
void adafactor_update(Context&, const AdafactorUpdate&);

}  // namespace trident
