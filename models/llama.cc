// Llama (Touvron 2023): RoPE, RMSNorm, SwiGLU, grouped queries (Ainslie 2023). Biases are optional
// (model.attention_bias, model.mlp_bias).
#include "models/family_format_tables.h"

namespace trident {
namespace {

class Llama final : public TabledArchitecture {
 public:
  Llama() : TabledArchitecture(llama_formats()) {}

  ModelConstraints constraints() const override {
    return {.doc = "has rotary positions, RMSNorm, SwiGLU and grouped queries",
            .positions = Positions::rotary,
            .gated_mlp = true,
            .tied = false,
            .optional_biases = true,
            .padding_row = true};
  }

  bool layers_alike() const override { return true; }

  TransformerShape shape(const Config& config) const override {
    TransformerShape shape = transformer_shape(config);
    shape.positions = 0;
    shape.swiglu = true;
    shape.rotary = true;
    shape.qkv_bias = shape.output_bias = config.model.attention_bias;
    shape.mlp_bias = config.model.mlp_bias;
    return shape;
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_llama() {
  return std::make_shared<Llama>();
}

}  // namespace trident
