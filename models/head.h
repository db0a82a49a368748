// The last module of a language model: norm, projection onto the vocabulary, loss.
//
// The logits of a micro-batch are the largest tensor of a small model, so they are never all held:
// some rows at a time become losses and, in training, at once the gradients of the activations and
// of the table. Backward then has only the sum over the tensor group and the norm left to do.
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
  // `table` (V'/t, H): the embedding's parameter, its copy, or one of the head's own.
  LanguageModelHead(const TensorParallel&, const TransformerShape&, Weight table);
  std::vector<std::shared_ptr<Parameter>> parameters() const override;
  std::vector<std::shared_ptr<Parameter>> backward_parameters() const override;
  std::vector<std::shared_ptr<Parameter>> forward_gradients() const override;
  // Gives the losses (T) fp32 where batch.labels is defined, else the logits (T, V'/t). Adds to
  // the table's gradient where batch.training is set.
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, SavedActivationsPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const override;

 private:
  Norm norm_;
  Weight table_;
  TensorParallel parallel_;
  TransformerShape shape_;
  VocabParallelCrossEntropy loss_;
};

// How many of `rows` have their logits, `columns` of them a rank, held at a time: equal parts.
std::int64_t logit_rows(const TransformerShape&, std::int64_t rows, std::int64_t columns);

// An output projection of its own, for models without tied embeddings.
std::shared_ptr<Parameter> output_table(const TensorParallel&, const TransformerShape&);

}  // namespace trident
