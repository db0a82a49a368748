// The sizes and choices that distinguish the transformer layers of the families.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "kernels/attention.h"
#include "kernels/experts.h"
#include "kernels/rotary.h"
#include "kernels/routing.h"
#include "models/module.h"
#include "parallel/tensor/linear.h"
#include "settings/config.h"

namespace trident {

// The layers whose feed-forward sublayer is a mixture of experts (models/experts.h).
struct ExpertsShape {
  RouterShape router;                // router.experts 0: no layer has experts
  std::vector<std::int64_t> layers;  // ascending
  std::int64_t ffn = 0;              // the width of each expert
  std::int64_t shared_ffn = 0;       // of an expert that all tokens take; 0: none
  bool shared_gate = false;          // its output is multiplied by the sigmoid of a linear unit
  // The coefficient of the balancing loss, summed over layers: the mean over samples of Σ f P, f an
  // expert's share of the sample's choices times E, P its mean probability (DeepSeek-V3).
  float balancing_loss = 0;
  // f and P are those of all tokens of a micro-batch on one data-parallel rank (Megatron-LM's
  // aux_loss); the loss then depends on the micro-batch's size.
  bool balances_micro_batch = false;
  // Each expert's bias counts for the choice of experts alone. After a step it moves by this
  // towards the mean number of tokens (Wang 2024).
  bool bias = false;
  float bias_rate = 0;
  // The router and each expert's two projections have biases, and these are stored with their
  // inputs first, (E, H, 2F) and (E, F, H), gate and up in turns (gpt-oss).
  bool biases = false, input_first = false;
  GatedUnit unit;
  // Whatever the dtype of the model the router's product is fp32, and so is its weight.
  bool fp32_router = false, fp32_router_weight = false;
  float z_loss = 0;  // times the mean over tokens of the squared log-sum-exp (Zoph 2022)
  // In training an expert takes at most capacity() tokens of a sample, those at later positions are
  // dropped first. 0: any number.
  double capacity_factor = 0;
  bool balanced_routing = false;  // tokens take the experts in turn (models/balanced_routing.h)

  // ceil(capacity_factor · K · S / E) for S positions, at least 1 and at most S.
  std::int64_t capacity(std::int64_t sequence) const;

  bool has(std::int64_t layer) const;
  // The name of the balancing loss among a step's auxiliary losses.
  const char* balancing_name() const { return balances_micro_batch ? "aux_loss" : "seq_aux_loss"; }
};

// The sizes of models/latent_attention.h.
struct LatentShape {
  std::int64_t rank = 0;        // of the latent of keys and values; 0: attention has none
  std::int64_t query_rank = 0;  // of the queries' latent; 0: they are projected from the input
  // Elements of a query or key head without and with rotary positions, and of a value head.
  std::int64_t plain = 0, rotary = 0, value = 0;
  bool interleaved = true;     // the rotary pairs are neighbours
  float norm_epsilon = 1e-6f;  // of the latents' norms
  float score_factor = 1;      // of the scores, beside 1 / sqrt(key_dim())
  std::int64_t key_dim() const { return plain + rotary; }
};

struct TransformerShape {
  std::int64_t layers = 0, hidden = 0, heads = 0, groups = 0, ffn = 0;
  std::int64_t positions = 0;  // 0: no learned positions
  std::int64_t vocabulary = 0, padded_vocabulary = 0;
  // The embedding row of this token starts at 0 and gets no gradient from look-ups; -1: no such
  // token.
  std::int64_t padding_token = -1;
  bool tied = false;
  bool layer_norm = false;  // norms are LayerNorms with biases; false: RMSNorm
  // The biases of linear layers: of queries, keys and values, of attention's output, of the MLP.
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool swiglu = false;  // gate and up projections; false: GELU
  bool rotary = false;
  RotaryFrequencies rotary_frequencies;
  bool qk_norm = false;          // RMSNorms of queries and of keys, before the rotary positions
  bool norms_all_heads = false;  // with qk_norm: all heads together (OLMoE); else each by itself
  std::int64_t head_size = 0;    // 0: hidden / heads
  bool sinks = false;            // of attention, one a head (AttentionArgs)
  // The most keys that a query sees in the layers of window_layers; 0: all before it.
  std::int64_t sliding_window = 0;
  std::vector<std::int64_t> window_layers;  // ascending
  LatentShape latent;
  ExpertsShape experts;
  // The layers that predict further tokens (models/multi_token.h), behind the others in numbers and
  // names, and the factor of their mean loss.
  std::int64_t mtp_layers = 0;
  float mtp_loss = 0;
  float norm_epsilon = 1e-5f;
  float init_deviation = 0.02f;
  float hidden_dropout = 0, attention_dropout = 0, label_smoothing = 0;
  std::uint64_t seed = 0;
  bool recompute_attention = false;  // backward recomputes attention's core
  // Backward recomputes the blocks of layers that predict further tokens.
  bool recompute_further = false;
  DType dtype = DType::f32;  // of weights and activations
  // The largest size of the logits that exist at a time, in bytes. It is larger on a GPU, as each
  // part adds to the complete gradient of the table.
  std::int64_t logit_bytes = 64 << 20;

  // Whether the last stage uses the embedding's table.
  bool embeds_on_last_stage() const { return tied || mtp_layers > 0; }
  std::int64_t head_dim() const { return head_size > 0 ? head_size : hidden / heads; }
  // The window of a layer's attention, as in AttentionMask.
  std::int64_t window_of(std::int64_t layer) const;
  // The initial deviation of projections into the residual stream is smaller by sqrt(2 · layers)
  // (GPT-2, Megatron-LM).
  float output_deviation() const;
};

// The frequencies that model.rotary_base and model.rope_scaling ask for.
RotaryFrequencies rotary_frequencies(const ModelConfig&);

// The sizes of a loaded config. The architecture's own choices keep their defaults.
TransformerShape transformer_shape(const Config&);

}  // namespace trident
