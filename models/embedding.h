// The first module of a language model. It turns tokens (and learned positions) into activations.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/module.h"
#include "models/transformer.h"
#include "parallel/tensor/vocabulary.h"

namespace trident {

class Embedding final : public Module {
 public:
  // `table`: (V'/t, H), see embedding_table(). With shape.positions it also has a parameter
  // "positions.weight".
  Embedding(const ParallelContext&, const TransformerShape&, Weight table);
  std::vector<std::shared_ptr<Parameter>> parameters() const override;
  std::vector<std::shared_ptr<Parameter>> backward_parameters() const override { return {}; }
  Tensor forward(Context&, const MicroBatch&, const Tensor&, SavedActivationsPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const override;

 private:
  ParallelContext parallel_;
  DType dtype_;
  float dropout_;
  std::uint64_t dropout_key_;
  Weight table_, positions_;
  VocabParallelEmbedding lookup_;
};

// The parameter of the token embedding. `copy` is true for the last stage's copy.
std::shared_ptr<Parameter> embedding_table(const ParallelContext&, const TransformerShape&,
                                           bool copy);

}  // namespace trident
