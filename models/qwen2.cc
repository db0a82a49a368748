// Qwen 2 and 2.5 (Yang 2024): Llama with biases on queries, keys and values.
#include "models/llama.h"

namespace trident {
namespace {

class Qwen2 : public Llama {
 public:
  explicit Qwen2(const FamilyFormatTables& tables) : Llama(tables) {}

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

// Qwen 1.5's and 2's mixtures of experts (Qwen team 2024): Qwen 2 with experts in place of the MLP
// in some layers, and one that all tokens take, with a gate.
class Qwen2Moe final : public Qwen2 {
 public:
  Qwen2Moe() : Qwen2(qwen2_moe_formats()) {}

  ModelConstraints constraints() const override {
    ModelConstraints constraints = Qwen2::constraints();
    constraints.doc = "is qwen2 with experts, one of them for all tokens";
    constraints.experts = {.layers = ExpertLayers::any, .shared = true, .shared_gate = true};
    return constraints;
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_qwen2() {
  return std::make_shared<Qwen2>(qwen2_formats());
}

std::shared_ptr<const Architecture> make_qwen2_moe() {
  return std::make_shared<Qwen2Moe>();
}

}  // namespace trident
