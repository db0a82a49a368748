#include "models/llama.h"

namespace trident {

ModelConstraints Llama::constraints() const {
  return {.doc = "has rotary positions, RMSNorm, SwiGLU and grouped queries",
          .positions = Positions::rotary,
          .gated_mlp = true,
          .tied = false,
          .optional_attention_bias = true,
          .optional_mlp_bias = true,
          .free_head_dim = true,
          .padding_row = true};
}

TransformerShape Llama::shape(const Config& config) const {
  TransformerShape shape = transformer_shape(config);
  shape.positions = 0;
  shape.swiglu = true;
  shape.rotary = true;
  shape.qkv_bias = shape.output_bias = config.model.attention_bias;
  shape.mlp_bias = config.model.mlp_bias;
  return shape;
}

std::shared_ptr<const Architecture> make_llama() {
  return std::make_shared<Llama>();
}

}  // namespace trident
