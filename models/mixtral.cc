// Mixtral (Jiang 2024): Mistral with experts in place of the MLP in all layers. The weights of the
// experts that a token takes are always divided by their sum.
#include "models/llama.h"

namespace trident {
namespace {

class Mixtral final : public Llama {
 public:
  Mixtral() : Llama(mixtral_formats()) {}

  ModelConstraints constraints() const override {
    ModelConstraints constraints = Llama::constraints();
    constraints.doc = "is mistral with experts";
    constraints.optional_attention_bias = constraints.optional_mlp_bias = false;
    constraints.heads_divide_width = false;
    constraints.window = WindowRule::all_layers;
    constraints.experts = {.layers = ExpertLayers::all, .norm_topk_prob = true, .fixed_norm = true};
    return constraints;
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_mixtral() {
  return std::make_shared<Mixtral>();
}

}  // namespace trident
