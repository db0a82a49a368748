// The projection onto the vocabulary and the loss, parts of a language model's head
// (models/head.h). Collective over the ranks that share the table.
//
// The logits of a micro-batch are the largest tensor of a small model, so they never exist all at
// once: some rows at a time become losses and, in training, at once the gradients of the
// activations and of the table.
#pragma once

#include <memory>
#include <optional>

#include "models/transformer.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/vocabulary.h"

namespace trident {

class OutputLayer {
 public:
  // `table`: (V'/t, H).
  OutputLayer(const ParallelContext&, const TransformerShape&, Weight table);
  const std::shared_ptr<Parameter>& table() const { return projection_.weight().parameter(); }

  // y (T, H) → logits (T, V'/t).
  Tensor logits(Context&, WeightVersion, const Tensor& y) const;
  // Fills losses (T) fp32 for labels (T) i32. With `scale`, gradients are of scale · Σ losses:
  // fills gradient (T, H) of y, this rank's addend of the sum, and adds to the table's.
  void run(Context&, WeightVersion, const Tensor& y, const Tensor& labels, const Tensor& losses,
           std::optional<float> scale, const Tensor& gradient) const;

 private:
  TransformerShape shape_;
  Linear projection_;
  VocabParallelCrossEntropy loss_;
};

// The number of rows whose logits exist at a time, for `rows` rows and `columns` logits per rank.
// It divides the rows into equal parts.
std::int64_t logit_rows(const TransformerShape&, std::int64_t rows, std::int64_t columns);

// The table of a separate output projection, for models without tied embeddings.
Weight output_table(const ParallelContext&, const TransformerShape&);

}  // namespace trident
