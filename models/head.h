// The last module of a language model: norm, projection onto the vocabulary, loss.
//
// The logits of a micro-batch are the largest tensor of a small model, so they never exist all at
// once. The head processes some rows at a time. It turns their logits into losses and, in training,
// at once into the gradients of the activations and of the table. Backward then only computes the
// sum over the tensor-parallel group and the norm.
#pragma once

#include <memory>
#include <vector>

#include "models/module.h"
#include "models/norm.h"
#include "models/transformer.h"
#include "parallel/tensor/vocabulary.h"

namespace trident {

class LanguageModelHead final : public Module {
 public:
  // `table` (V'/t, H) is the embedding's parameter, its copy, or a separate output parameter.
  LanguageModelHead(const ParallelContext&, const TransformerShape&, Weight table);
  std::vector<std::shared_ptr<Parameter>> parameters() const override;
  std::vector<std::shared_ptr<Parameter>> backward_parameters() const override;
  std::vector<std::shared_ptr<Parameter>> forward_gradients() const override;
  // Returns the losses (T) in fp32 if batch.labels is defined, else the logits (T, V'/t). Adds to
  // the table's gradient if batch.training is set.
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, SavedActivationsPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const override;

 private:
  Norm norm_;
  Weight table_;
  ParallelContext parallel_;
  TransformerShape shape_;
  VocabParallelCrossEntropy loss_;
};

// The number of rows whose logits exist at a time, for `rows` rows and `columns` logits per rank.
// It divides the rows into equal parts.
std::int64_t logit_rows(const TransformerShape&, std::int64_t rows, std::int64_t columns);

// The parameter of a separate output projection, for models without tied embeddings.
std::shared_ptr<Parameter> output_table(const ParallelContext&, const TransformerShape&);

}  // namespace trident
