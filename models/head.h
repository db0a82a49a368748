// The last module of a language model: norm, projection onto the vocabulary, loss.
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
  // Gives the losses (T) fp32 where batch.labels is defined, else the logits (T, V'/t).
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, RecordPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        RecordPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, RecordPtr&) const override;

 private:
  Norm norm_;
  Weight table_;
  ColumnParallelLinear projection_;
  VocabParallelCrossEntropy loss_;
};

// An output projection of its own, for models without tied embeddings.
std::shared_ptr<Parameter> output_table(const TensorParallel&, const TransformerShape&);

}  // namespace trident
