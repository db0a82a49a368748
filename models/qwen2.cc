// Qwen 2 and 2.5 (Yang 2024): Llama with biases on queries, keys and values.
#include "models/llama.h"

namespace trident {
namespace {

class Qwen2 final : public Llama {
 public:
  Qwen2() : Llama(qwen2_formats()) {}

  ModelConstraints constraints() const override {
    ModelConstraints constraints = Llama::constraints();
    constraints.doc = "is llama with biases on queries, keys and values";
    constraints.optional_attention_bias = constraints.optional_mlp_bias = false;
    constraints.heads_divide_width = false;
    constraints.window = WindowRule::any_layers;
    return constraints;
  }
  TransformerShape shape(const Config& config) const override {
    TransformerShape shape = Llama::shape(config);
    shape.qkv_bias = true;
    return shape;
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_qwen2() {
  return std::make_shared<Qwen2>();
}

}  // namespace trident
