#include "models/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace trident {

float TransformerShape::output_deviation() const {
  return init_deviation / std::sqrt(2.0f * static_cast<float>(layers));
}

std::int64_t TransformerShape::window_of(std::int64_t layer) const {
  return std::ranges::binary_search(window_layers, layer) ? sliding_window : 0;
}

std::int64_t ExpertsShape::capacity(std::int64_t sequence) const {
  const double exact = capacity_factor * static_cast<double>(router.topk * sequence) /
                       static_cast<double>(router.experts);
  // Factors such as 1.1 are a little more than they say.
  const double rounded = std::ceil(exact * (1 - 1e-12));
  return static_cast<std::int64_t>(std::clamp(rounded, 1.0, static_cast<double>(sequence)));
}

bool ExpertsShape::has(std::int64_t layer) const {
  return std::ranges::binary_search(layers, layer);
}

namespace {

ExpertsShape experts_shape(const MoeConfig& moe) {
  if (!moe.has_experts()) return {};
  const std::string& balancing = moe.router_load_balancing_type;
  return {.router = {.experts = moe.num_experts,
                     .topk = moe.router_topk,
                     .score = moe.router_score_function == "sigmoid" ? RouterScore::sigmoid
                                                                     : RouterScore::softmax,
                     .normalized = moe.norm_topk_prob,
                     .scaling = static_cast<float>(moe.router_topk_scaling_factor),
                     .groups = moe.router_num_groups,
                     .group_topk = moe.router_group_topk},
          .layers = moe.layers(),
          .ffn = moe.ffn_hidden_size,
          .shared_ffn = moe.shared_expert_intermediate_size,
          .shared_gate = moe.shared_expert_gate && moe.shared_expert_intermediate_size > 0,
          .balancing_loss = balancing == "none" ? 0 : static_cast<float>(moe.aux_loss_coeff),
          .balances_micro_batch = balancing == "aux_loss",
          .bias = moe.router_enable_expert_bias,
          .bias_rate = static_cast<float>(moe.router_bias_update_rate),
          .fp32_router = moe.router_dtype == "fp32",
          .z_loss = static_cast<float>(moe.z_loss_coeff),
          .capacity_factor = moe.expert_capacity_factor.value_or(0),
          .balanced_routing = moe.balanced_routing};
}

// The factor of sines and cosines: as transformers computes it (_compute_yarn_parameters).
double yarn_amplitude(const RopeScalingConfig& scaling) {
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  const auto of = [&](double scale) {
    return scaling.factor <= 1 ? 1.0 : 0.1 * scale * std::log(scaling.factor) + 1;
  };
  if (scaling.mscale > 0 && scaling.mscale_all_dim > 0) {
    return of(scaling.mscale) / of(scaling.mscale_all_dim);
  }
  return of(1);
}

}  // namespace

RotaryFrequencies rotary_frequencies(const ModelConfig& model) {
  const RopeScalingConfig& scaling = model.rope_scaling;
  const auto base = static_cast<float>(model.rotary_base);
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  if (scaling.rope_type == "linear") return linear_frequencies(base, scaling.factor);
  if (scaling.rope_type == "llama3") {
    return llama3_frequencies(base, scaling.factor, scaling.low_freq_factor,
                              scaling.high_freq_factor, original);
  }
  if (scaling.rope_type == "yarn") {
    return yarn_frequencies(base, model.head_dim,
                            {.factor = scaling.factor,
                             .beta_fast = scaling.beta_fast,
                             .beta_slow = scaling.beta_slow,
                             .original = original,
                             .truncate = scaling.truncate,
                             .amplitude = yarn_amplitude(scaling)});
  }
  if (scaling.rope_type == "default") return {.base = base};
  throw Error(
      fmt::format("rotary_frequencies: no formula for rope_type \"{}\"", scaling.rope_type));
}

TransformerShape transformer_shape(const Config& config) {
  const ModelConfig& model = config.model;
  return {.layers = model.num_layers,
          .hidden = model.hidden_size,
          .heads = model.num_attention_heads,
          .groups = model.num_query_groups,
          .ffn = model.ffn_hidden_size,
          .positions = model.max_position_embeddings,
          .vocabulary = model.vocab_size,
          .padded_vocabulary = config.padded_vocab_size(),
          .padding_token = model.pad_token_id.value_or(-1),
          .tied = model.tie_word_embeddings,
          .rotary_frequencies = rotary_frequencies(model),
          .qk_norm = model.qk_norm,
          .head_size = model.head_dim,
          .sliding_window = model.sliding_window.value_or(0),
          .window_layers = model.window_layers,
          .experts = experts_shape(model.moe),
          .mtp_layers = model.mtp_num_layers,
          .mtp_loss = static_cast<float>(model.mtp_loss_scaling_factor),
          .norm_epsilon = static_cast<float>(model.norm_epsilon),
          .init_deviation = static_cast<float>(model.init_method_std),
          .hidden_dropout = static_cast<float>(model.hidden_dropout),
          .attention_dropout = static_cast<float>(model.attention_dropout),
          .label_smoothing = static_cast<float>(config.training.label_smoothing),
          .seed = static_cast<std::uint64_t>(config.training.seed),
          .recompute_attention = config.activation_checkpointing.granularity == "selective",
          .recompute_further = config.activation_checkpointing.granularity == "full",
          .dtype = dtype_of(config.precision.dtype),
          .logit_bytes = std::int64_t{config.runtime.device == "cuda" ? 1024 : 64} << 20};
}

}  // namespace trident
