// A layer that predicts a further token, in training alone (multi-token prediction, DeepSeek-V3's
// report, DeepSeek-AI 2024, section 2.2). Layer k = 1, 2, … takes the hidden states h of the layer
// before, of the model's final norm for the first, and the embeddings of the tokens k positions
// ahead, and predicts the tokens k + 1 positions ahead with the model's own output table:
//   h' = norm(block(eh_proj(concat(enorm(embedding), hnorm(h)))))
//   loss = λ / D · Σ of the cross-entropies of h' at positions that have such a token,
// for D layers and λ = model.mtp_loss_scaling_factor; like the main loss, a step divides it by all
// tokens of its batch. It is reported as the auxiliary loss mtp_loss.
//
// A sample's last k positions have no such token and take no part in the loss. They pass through
// the layer with the sample's last tokens as placeholders. No other position attends to them, but
// they count for the balance of experts, as in Megatron-LM.
//
// Part of LanguageModelHead; its forward and backward are collective as a module's are.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/module.h"
#include "models/norm.h"
#include "models/output_layer.h"
#include "models/transformer.h"
#include "parallel/tensor/linear.h"

namespace trident {

class MultiTokenLayer {
 public:
  // Makes the parameters of NAME = layers.(L + depth - 1), where the model has L layers:
  // NAME.enorm.weight, NAME.hnorm.weight and NAME.shared_head_norm.weight (H), NAME.eh_proj.weight
  // (H, 2H). `block` is the Block of that name. `embedding` (V'/t, H): the layers of a model share
  // one use of it.
  MultiTokenLayer(const ParallelContext&, const TransformerShape&, std::int64_t depth,
                  OutputLayer output, Weight embedding, std::unique_ptr<Module> block);
  // The statistics of the layers: mtp_loss of each.
  static std::vector<Statistic> statistics(const TransformerShape&);

  // These leave out the tables.
  std::vector<std::shared_ptr<Parameter>> parameters() const;
  std::vector<std::shared_ptr<Parameter>> backward_parameters() const;
  std::vector<std::shared_ptr<Parameter>> forward_gradients() const;
  std::vector<std::shared_ptr<Parameter>> buffers() const;

  // h (T or T/t, H) → h' of the same shape. Adds to the output table's gradient.
  Tensor forward(Context&, const MicroBatch&, const Tensor& h, SavedActivationsPtr&) const;
  // The gradient of h, given that of h' by the layers behind, undefined for the last one.
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad,
                        SavedActivationsPtr&) const;
  // Adds to the gradients of the layer and of the embedding.
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const;

 private:
  struct Saved;
  std::vector<std::shared_ptr<Parameter>> with_own(
      std::vector<std::shared_ptr<Parameter>> of_block) const;
  // The tokens `depth_` positions ahead of each row.
  Tensor tokens(Context&, const MicroBatch&) const;
  void run_output(Context&, const MicroBatch&, const Tensor& h, Saved&) const;

  ParallelContext parallel_;
  std::int64_t depth_, layer_;
  DType dtype_;
  float factor_;  // λ / D
  Norm embedding_norm_, hidden_norm_;
  Linear projection_;
  std::unique_ptr<Module> block_;
  Norm norm_;
  OutputLayer output_;
  VocabParallelEmbedding lookup_;
};

}  // namespace trident
