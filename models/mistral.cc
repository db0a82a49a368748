// Mistral (Jiang 2023): Llama with a sliding window in all layers.
#include "models/llama.h"

namespace trident {
namespace {

class Mistral : public Llama {
 public:
  explicit Mistral(const FamilyFormatTables& tables) : Llama(tables) {}

  ModelConstraints constraints() const override {
    ModelConstraints constraints = Llama::constraints();
    constraints.doc = "is llama with a sliding window";
    constraints.optional_attention_bias = constraints.optional_mlp_bias = false;
    constraints.heads_divide_width = false;
    constraints.window = WindowRule::all_layers;
    return constraints;
  }
};

// Mixtral (Jiang 2024): Mistral with experts in place of the MLP in all layers. The weights of the
// experts that a token takes are always divided by their sum.
class Mixtral final : public Mistral {
 public:
  Mixtral() : Mistral(mixtral_formats()) {}

  ModelConstraints constraints() const override {
    ModelConstraints constraints = Mistral::constraints();
    constraints.doc = "is mistral with experts";
    constraints.experts = {.layers = ExpertLayers::all, .norm_topk_prob = true, .fixed_norm = true};
    return constraints;
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_mistral() {
  return std::make_shared<Mistral>(mistral_formats());
}

std::shared_ptr<const Architecture> make_mixtral() {
  return std::make_shared<Mixtral>();
}

}  // namespace trident
