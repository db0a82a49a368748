// The sizes and choices that make a transformer layer GPT-2's or Llama's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "kernels/attention.h"
#include "models/module.h"
#include "parallel/tensor/linear.h"
#include "settings/config.h"

namespace trident {

struct TransformerShape {
  std::int64_t layers = 0, hidden = 0, heads = 0, groups = 0, ffn = 0;
  std::int64_t positions = 0;  // 0: no learned positions
  std::int64_t vocabulary = 0, padded_vocabulary = 0;
  // Its row of the embedding gets no gradient where it is looked up, and starts at 0; -1: none.
  std::int64_t padding_token = -1;
  bool tied = false;
  bool biases = false;  // of linear layers and norms; without: RMSNorm
  bool swiglu = false;  // gate and up projections; without: GELU
  bool rotary = false;
  float rotary_base = 10000.0f;
  float norm_epsilon = 1e-5f;
  float init_deviation = 0.02f;
  float hidden_dropout = 0, attention_dropout = 0, label_smoothing = 0;
  std::uint64_t seed = 0;
  bool recompute_attention = false;  // backward computes attention's core again
  DType dtype = DType::f32;          // of weights and activations
  // Of logits held at a time, at most. On a GPU larger, as each part adds to all of the table's
  // gradient.
  std::int64_t logit_bytes = 64 << 20;

  std::int64_t head_dim() const { return hidden / heads; }
  // Projections into the residual stream start smaller by sqrt(2 · layers) (GPT-2, Megatron-LM).
  float output_deviation() const;
};

// Sizes from a loaded config; the architecture's own choices are left at their defaults.
TransformerShape transformer_shape(const Config&);

// Parameter NAME of a linear layer.
Weight linear_weight(const std::string& name, Placement, float deviation);
Weight linear_bias(const std::string& name, Placement);
// Remembers the parameter of `weight` in `list` and gives `weight` back.
Weight kept(std::vector<std::shared_ptr<Parameter>>& list, Weight weight);

}  // namespace trident
