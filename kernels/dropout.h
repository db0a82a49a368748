// Dropout whose mask is a function of the global element index alone. Layout, resume and
// recomputation therefore do not change the mask.
//
// dropout_add checks its arguments (Error if one does not fit), enqueues the work on the context's
// stream and returns; see kernels/backend.h.
#pragma once

#include <cstdint>

#include "core/context.h"

namespace trident {

// The mask. Element e of sample s is kept iff word e % 4 of Philox4x32-10 is >= probability · 2^32.
// The counter is (low and high half of e / 4, low and high half of s), the key is `key`. Kept
// values are scaled by 1 / (1 - probability).
struct DropoutArgs {
  float probability = 0;
  std::uint64_t key = 0;  // random_key(seed, "layer.site")
  Tensor samples;         // (B) i64: the global sample number of each sequence of the micro-batch
};

// y := dropout(x) (+ residual), with x (T, H). Row t is position r % S of sample r / S of the
// micro-batch, where r = first_row + t and S is `sequence`. `first_row` is the row of the
// micro-batch at which this tensor begins; sequence parallelism holds only a part. Within a sample
// the element index is position · H + column. `places` gives each row another position, where S
// positions of a sample are not its first ones (context parallelism). y may share the memory of x
// or of residual. With probability 0 this is a plain addition (or copy).
struct DropoutAddArgs {
  DropoutArgs dropout;
  Tensor x, residual, y;  // (T, H); residual is optional; fp32, bf16 or fp16
  std::int64_t sequence = 0;
  std::int64_t first_row = 0;
  Tensor places;  // (rows of the micro-batch) i32: the position of each row; none: r % S
};
void dropout_add(Context&, const DropoutAddArgs&);
// The gradient of dropout applies the same mask to the gradient: call dropout_add without a
// residual.

}  // namespace trident
