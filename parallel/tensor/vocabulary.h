// Embedding and loss over a vocabulary that is sharded over the tensor group (Shoeybi 2019). All
// ranks of that group call forward, backward and run in the same order.
#pragma once

#include <cstdint>
#include <optional>

#include "core/context.h"
#include "parallel/parameter.h"
#include "parallel/tensor/linear.h"

namespace trident {

// ids (T) i32 → (T or T/t, H). Each rank looks up its part of the table; the sum over the group is
// the complete row.
class VocabParallelEmbedding {
 public:
  // `padding`: the token whose row gets no gradient here; -1: none.
  VocabParallelEmbedding(ParallelContext parallel, Weight table, std::int64_t padding = -1);
  Tensor forward(Context&, WeightVersion, const Tensor& ids, DType dtype) const;
  // grad_y (T or T/t, H)
  void backward_weight(Context&, const Tensor& ids, const Tensor& grad_y) const;

 private:
  ParallelContext parallel_;
  Weight table_;
  std::int64_t begin_ = 0, padding_;
};

// Softmax cross-entropy of logits (T, V'/t) sharded by columns, where V' is the padded vocabulary.
// The logits are never gathered: there is one all-reduce of the maxima and one of three sums a
// token.
class VocabParallelCrossEntropy {
 public:
  VocabParallelCrossEntropy(ParallelContext parallel, std::int64_t vocabulary, std::int64_t padded,
                            float label_smoothing);
  struct SavedActivations {
    Tensor logits, labels, maximum, statistics;
  };
  // Fills losses (T) fp32.
  void forward(Context&, const Tensor& logits, const Tensor& labels, const Tensor& losses,
               SavedActivations&) const;
  // Returns the gradient of scale · Σ losses, in the logits' memory. Frees the saved activations.
  Tensor backward(Context&, float scale, SavedActivations&) const;
  // forward() and backward(), where nothing is needed in between; without a scale the losses alone.
  void run(Context&, const Tensor& logits, const Tensor& labels, const Tensor& losses,
           std::optional<float> scale) const;

 private:
  ParallelContext parallel_;
  std::int64_t vocabulary_;
  ParallelContext::Range columns_;  // of the padded vocabulary
  float label_smoothing_;
};

}  // namespace trident
