// Mistral (Jiang 2023): Llama with a sliding window in all layers.
#include "models/llama.h"

namespace trident {
namespace {

class Mistral final : public Llama {
 public:
  Mistral() : Llama(mistral_formats()) {}

  ModelConstraints constraints() const override {
    ModelConstraints constraints = Llama::constraints();
    constraints.doc = "is llama with a sliding window";
    constraints.optional_attention_bias = constraints.optional_mlp_bias = false;
    constraints.heads_divide_width = false;
    constraints.window = WindowRule::all_layers;
    return constraints;
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_mistral() {
  return std::make_shared<Mistral>();
}

}  // namespace trident
