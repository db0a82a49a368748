// Qwen 3 (Yang 2025): Llama with norms of queries and keys.
#include "models/llama.h"

namespace trident {
namespace {

class Qwen3 final : public Llama {
 public:
  Qwen3() : Llama(qwen3_formats()) {}

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

}  // namespace

std::shared_ptr<const Architecture> make_qwen3() {
  return std::make_shared<Qwen3>();
}

}  // namespace trident
