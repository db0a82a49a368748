// The last module of a language model: norm, projection onto the vocabulary, loss; and in training
// the layers that predict further tokens (models/multi_token.h), where the model has them.
//
// The output layer turns activations into losses and, in training, at once into their gradients
// (models/output_layer.h). Backward then only computes the sum over the tensor-parallel group, the
// norm, and the further layers.
#pragma once

#include <memory>
#include <vector>

#include "models/module.h"
#include "models/multi_token.h"
#include "models/norm.h"
#include "models/output_layer.h"
#include "models/transformer.h"

namespace trident {

class LanguageModelHead final : public Module {
 public:
  // `table` (V'/t, H) is the embedding's parameter, its copy, or a separate output parameter.
  LanguageModelHead(const ParallelContext&, const TransformerShape&, Weight table);
  // With a layer for each further token: blocks[i] is the Block of the token i + 2 positions ahead.
  // `embedding` (V'/t, H) is the embedding's parameter or its copy.
  LanguageModelHead(const ParallelContext&, const TransformerShape&, Weight table, Weight embedding,
                    std::vector<std::unique_ptr<Module>> blocks);
  std::vector<std::shared_ptr<Parameter>> parameters() const override;
  std::vector<std::shared_ptr<Parameter>> backward_parameters() const override;
  std::vector<std::shared_ptr<Parameter>> forward_gradients() const override;
  std::vector<std::shared_ptr<Parameter>> buffers() const override;
  // Returns the losses (T) in fp32 if batch.labels is defined, else the logits (T, V'/t). Adds to
  // the table's gradient if batch.training is set. The losses of further tokens are auxiliary ones.
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, SavedActivationsPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const override;

 private:
  Norm norm_;
  ParallelContext parallel_;
  OutputLayer output_;
  Weight embedding_;  // of the further layers
  std::vector<MultiTokenLayer> further_;
};

}  // namespace trident
