// Dropout whose mask depends on the global element alone, so that no layout, resume or
// recomputation changes it.
#pragma once

#include <cstdint>

#include "core/context.h"

namespace trident {

// Element e of sample s is kept iff word e % 4 of Philox4x32-10 with counter
// (low and high half of e / 4, low and high half of s) and key `key` is >= probability · 2^32;
// kept values are scaled by 1 / (1 - probability).
struct DropoutArgs {
  float probability = 0;
  std::uint64_t key = 0;  // random_key(seed, "layer.site")
  Tensor samples;         // (B) i64: the global sample number of each sequence of the micro-batch
};

// y := dropout(x) (+ residual). x (T, H); row t is position t % S of sample t / S, counted from
// `first_row`, this tensor's first row within the micro-batch (sequence parallelism holds a part).
// Element index within the sample: position · H + column. y may be x's or residual's memory.
// With probability 0 it is a plain addition (or copy).
struct DropoutAddArgs {
  DropoutArgs dropout;
  Tensor x, residual, y;  // (T, H); residual optional; fp32 or bf16
  std::int64_t sequence = 0;
  std::int64_t first_row = 0;
};
void dropout_add(Context&, const DropoutAddArgs&);
// The gradient of dropout alone is the same mask applied to the gradient: dropout_add without a
// residual.

}  // namespace trident
