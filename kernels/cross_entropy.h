// Softmax cross-entropy over a slice of the vocabulary, in four steps. Between the steps the caller
// reduces small per-token values over the tensor-parallel ranks (Shoeybi 2019), so the logits are
// never gathered.
//
// Letters: T tokens, V' columns on this rank. The first `valid` columns are real; the others are
// padding and do not contribute. A label below 0 doesn't count: its loss and its row of the
// gradient are 0 (torch.nn.CrossEntropyLoss's ignore_index). e is the label smoothing. Logits (T,
// V') are fp32, bf16 or fp16. Each function checks its arguments (Error if one does not fit),
// enqueues the work on the context's stream and returns; see kernels/backend.h.
#pragma once

#include <cstdint>
#include <optional>

#include "core/context.h"

namespace trident {

struct CrossEntropyShape {
  std::int64_t begin = 0;       // vocabulary index of column 0
  std::int64_t valid = 0;       // real columns on this rank; may be 0
  std::int64_t vocabulary = 0;  // real columns over all ranks
  float label_smoothing = 0;    // as torch.nn.CrossEntropyLoss
};

// maximum[t] = the maximum over this rank's real columns, -infinity if it has none. maximum (T) is
// fp32. The caller reduces it over ranks by maximum.
void cross_entropy_maximum(Context&, const CrossEntropyShape&, const Tensor& logits,
                           const Tensor& maximum);

// statistics (3, T) is fp32; the caller sums it over ranks. labels (T) i32 are vocabulary indices.
// Row 0: the sum of exp(logit - maximum).
// Row 1: the target's logit - maximum, 0 if another rank has the target.
// Row 2: the sum of logit - maximum, 0 without label smoothing.
// For a label below 0 row 0 is 1 on the rank with column 0; all else is 0.
void cross_entropy_statistics(Context&, const CrossEntropyShape&, const Tensor& logits,
                              const Tensor& labels, const Tensor& maximum,
                              const Tensor& statistics);

// Computes losses (T) fp32 from the summed statistics:
// losses = log(row 0) - (1 - e)·row 1 - e/vocabulary·row 2.
void cross_entropy_losses(Context&, const CrossEntropyShape&, const Tensor& statistics,
                          const Tensor& losses);

// Overwrites the logits by their gradient; padding columns become 0:
// logits := scale · (softmax - (1 - e)·onehot - e/vocabulary).
void cross_entropy_gradient(Context&, const CrossEntropyShape&, const Tensor& logits,
                            const Tensor& labels, const Tensor& maximum, const Tensor& statistics,
                            float scale);

// All four steps for a rank that holds every column (begin 0, valid == vocabulary), in one pass if
// the backend has a fused kernel. Losses are as above. With gradient_scale the logits become the
// gradient as above; without it they are unchanged.
void cross_entropy(Context&, const CrossEntropyShape&, const Tensor& logits, const Tensor& labels,
                   const Tensor& losses, std::optional<float> gradient_scale);

}  // namespace trident
