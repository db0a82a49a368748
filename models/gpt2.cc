// GPT-2 (Radford 2019): learned positions, LayerNorm, GELU (tanh), biases, tied embeddings.
#include "models/family_format_tables.h"

namespace trident {
namespace {

class Gpt2 final : public TabledArchitecture {
 public:
  Gpt2() : TabledArchitecture(gpt2_formats()) {}

  ModelConstraints constraints() const override {
    return {.doc = "has learned positions, LayerNorm and GELU",
            .positions = Positions::learned,
            .grouped_queries = false};
  }

  bool layers_alike(const TransformerShape&) const override { return true; }

  TransformerShape shape(const Config& config) const override {
    TransformerShape shape = transformer_shape(config);
    shape.layer_norm = true;
    shape.qkv_bias = shape.output_bias = shape.mlp_bias = true;
    return shape;
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_gpt2() {
  return std::make_shared<Gpt2>();
}

}  // namespace trident
