// GPT-2 (Radford 2019): learned positions, LayerNorm, GELU (tanh), biases, tied embeddings.
#include "models/architecture.h"
#include "models/family_format_tables.h"

namespace trident {
namespace {

class Gpt2 final : public Architecture {
 public:
  const FamilyFormats& formats() const override { return formats_; }

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

 private:
  TabledFormats formats_{gpt2_formats()};
};

}  // namespace

std::shared_ptr<const Architecture> make_gpt2() {
  return std::make_shared<Gpt2>();
}

}  // namespace trident
