#include "models/transformer.h"

#include <cmath>

namespace trident {

float TransformerShape::output_deviation() const {
  return init_deviation / std::sqrt(2.0f * static_cast<float>(layers));
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
          .rotary_base = static_cast<float>(model.rotary_base),
          .norm_epsilon = static_cast<float>(model.norm_epsilon),
          .init_deviation = static_cast<float>(model.init_method_std),
          .hidden_dropout = static_cast<float>(model.hidden_dropout),
          .attention_dropout = static_cast<float>(model.attention_dropout),
          .label_smoothing = static_cast<float>(config.training.label_smoothing),
          .seed = static_cast<std::uint64_t>(config.training.seed),
          .recompute_attention = config.activation_checkpointing.granularity == "selective",
          .dtype = dtype_of(config.precision.dtype),
          .logit_bytes = std::int64_t{config.runtime.device == "cuda" ? 1024 : 64} << 20};
}

}  // namespace trident
