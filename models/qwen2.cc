// Qwen 2 and 2.5 (Yang 2024): Llama with biases on queries, keys and values.
#include "models/family_format_tables.h"

namespace trident {
namespace {

class Qwen2 final : public TabledArchitecture {
 public:
  Qwen2() : TabledArchitecture(qwen2_formats()) {}

  ModelConstraints constraints() const override {
    return {.doc = "is llama with biases on queries, keys and values",
            .positions = Positions::rotary,
            .gated_mlp = true,
            .tied = false,
            .padding_row = true};
  }

  bool layers_alike() const override { return true; }

  TransformerShape shape(const Config& config) const override {
    TransformerShape shape = transformer_shape(config);
    shape.positions = 0;
    shape.swiglu = true;
    shape.rotary = true;
    shape.qkv_bias = true;
    return shape;
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_qwen2() {
  return std::make_shared<Qwen2>();
}

}  // namespace trident
