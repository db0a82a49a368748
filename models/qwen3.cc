// Qwen 3 (Yang 2025): Llama with norms of queries and keys.
#include "models/llama.h"

namespace trident {
namespace {

class Qwen3 : public Llama {
 public:
  explicit Qwen3(const FamilyFormatTables& tables) : Llama(tables) {}

  ModelConstraints constraints() const override {
    ModelConstraints constraints = Llama::constraints();
    constraints.doc = "is llama with norms of queries and keys";
    constraints.optional_mlp_bias = false;
    constraints.qk_norm = true;
    constraints.heads_divide_width = false;
    constraints.window = WindowRule::any_layers;
    return constraints;
  }
};

// Qwen 3's mixtures of experts: Qwen 3 with experts in place of the MLP in some layers.
class Qwen3Moe final : public Qwen3 {
 public:
  Qwen3Moe() : Qwen3(qwen3_moe_formats()) {}

  ModelConstraints constraints() const override {
    ModelConstraints constraints = Qwen3::constraints();
    constraints.doc = "is qwen3 with experts";
    constraints.window = WindowRule::all_layers;
    constraints.experts = {.layers = ExpertLayers::any};
    return constraints;
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_qwen3() {
  return std::make_shared<Qwen3>(qwen3_formats());
}

std::shared_ptr<const Architecture> make_qwen3_moe() {
  return std::make_shared<Qwen3Moe>();
}

}  // namespace trident
