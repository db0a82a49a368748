// Qwen 3's mixtures of experts (Yang 2025): Qwen 3 with experts in place of the MLP in some layers.
#include "models/llama.h"

namespace trident {
namespace {

class Qwen3Moe final : public Llama {
 public:
  Qwen3Moe() : Llama(qwen3_moe_formats()) {}

  ModelConstraints constraints() const override {
    ModelConstraints constraints = Llama::constraints();
    constraints.doc = "is qwen3 with experts";
    constraints.optional_mlp_bias = false;
    constraints.qk_norm = true;
    constraints.heads_divide_width = false;
    constraints.window = WindowRule::all_layers;
    constraints.experts = {.layers = ExpertLayers::any};
    return constraints;
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_qwen3_moe() {
  return std::make_shared<Qwen3Moe>();
}

}  // namespace trident
