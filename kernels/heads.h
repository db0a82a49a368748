// Copies and sums of parts of heads between tensors, as latent attention puts its keys together
// (models/latent_attention.h).
//
// T rows, D elements of a part. Tensors are fp32, bf16 or fp16, all of one dtype. Each function
// checks its arguments (Error if one does not fit), enqueues the work on the context's stream and
// returns; see kernels/backend.h.
#pragma once

#include <cstdint>

#include "core/context.h"

namespace trident {

// D elements of each head in the rows of a tensor: those of the first head begin at this column,
// those of the next one `stride` elements later. With stride 0 all heads share one part.
struct HeadParts {
  Tensor rows;  // (T, ·)
  std::int64_t begin = 0, stride = 0;
};

struct HeadPartsArgs {
  std::int64_t heads = 0, dim = 0;  // D
  HeadParts from, to;               // of T rows each
};
// to := from. The parts of `to` must not overlap.
void copy_heads(Context&, const HeadPartsArgs&);
// The one part of `to` := the sum over the heads of `from`, in their order, in fp32.
void sum_heads(Context&, const HeadPartsArgs&);

}  // namespace trident
