// Softmax cross-entropy over a slice of the vocabulary; the reductions over ranks stand between the
// steps (Shoeybi 2019), so logits are never gathered. T tokens, V' columns here, of which the first
// `valid` are real (the rest is padding and takes no part).
#pragma once

#include <cstdint>
#include <optional>

#include "core/context.h"

namespace trident {

struct CrossEntropyShape {
  std::int64_t begin = 0;       // vocabulary index of column 0
  std::int64_t valid = 0;       // real columns here, may be 0
  std::int64_t vocabulary = 0;  // real columns over all ranks
  float label_smoothing = 0;    // as torch.nn.CrossEntropyLoss
};

// maximum[t] = max over the real columns here (-infinity without any). maximum (T) fp32.
void cross_entropy_maximum(Context&, const CrossEntropyShape&, const Tensor& logits,
                           const Tensor& maximum);

// statistics (3, T) fp32, to be summed over ranks: row 0 sum of exp(logit - maximum), row 1 the
// target's logit - maximum (0 where it is not here), row 2 the sum of logit - maximum (0 without
// label smoothing). labels (T) i32, vocabulary indices.
void cross_entropy_statistics(Context&, const CrossEntropyShape&, const Tensor& logits,
                              const Tensor& labels, const Tensor& maximum,
                              const Tensor& statistics);

// losses (T) fp32 from the summed statistics:
// log(row 0) - (1 - e)·row 1 - e/vocabulary·row 2.
void cross_entropy_losses(Context&, const CrossEntropyShape&, const Tensor& statistics,
                          const Tensor& losses);

// logits := scale · (softmax - (1 - e)·onehot - e/vocabulary), in place; 0 in padding columns.
void cross_entropy_gradient(Context&, const CrossEntropyShape&, const Tensor& logits,
                            const Tensor& labels, const Tensor& maximum, const Tensor& statistics,
                            float scale);

// All of it where every column is here (begin 0, T rows in one step, one pass where the backend
// can): losses as above; with a scale the logits become the gradient as above, else they stay.
void cross_entropy(Context&, const CrossEntropyShape&, const Tensor& logits, const Tensor& labels,
                   const Tensor& losses, std::optional<float> gradient_scale);

}  // namespace trident
