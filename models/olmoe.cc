// OLMoE (Muennighoff 2024): Llama with experts in place of the MLP in all layers, and norms of
// queries and keys that take all heads together.
#include "models/llama.h"

namespace trident {
namespace {

class Olmoe final : public Llama {
 public:
  Olmoe() : Llama(olmoe_formats()) {}

  ModelConstraints constraints() const override {
    ModelConstraints constraints = Llama::constraints();
    constraints.doc = "is llama with experts, and norms of all queries and of all keys";
    constraints.optional_mlp_bias = false;
    constraints.free_head_dim = false;
    constraints.qk_norm = true;
    constraints.experts = {.layers = ExpertLayers::all};
    return constraints;
  }
  TransformerShape shape(const Config& config) const override {
    TransformerShape shape = Llama::shape(config);
    shape.norms_all_heads = true;
    return shape;
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_olmoe() {
  return std::make_shared<Olmoe>();
}

}  // namespace trident
