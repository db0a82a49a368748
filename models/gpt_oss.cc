// gpt-oss (OpenAI 2025): Llama with experts in all layers, biases of all projections, the router's
// and the experts' too, a gated unit with limits, sinks of attention, and a window in some layers.
#include "models/llama.h"

namespace trident {
namespace {

class GptOss final : public Llama {
 public:
  GptOss() : Llama(gpt_oss_formats()) {}

  ModelConstraints constraints() const override {
    ModelConstraints constraints = Llama::constraints();
    constraints.doc = "is llama with experts, biases, limits of its gated unit and sinks";
    constraints.optional_attention_bias = false;
    constraints.optional_mlp_bias = false;
    constraints.heads_divide_width = false;
    constraints.window = WindowRule::any_layers;
    constraints.experts = {.layers = ExpertLayers::all,
                           .norm_topk_prob = true,
                           .fixed_norm = true,
                           .projection_biases = true};
    return constraints;
  }
  TransformerShape shape(const Config& config) const override {
    TransformerShape shape = Llama::shape(config);
    shape.qkv_bias = shape.output_bias = true;
    shape.sinks = true;
    shape.experts.biases = shape.experts.input_first = true;
    shape.experts.unit = {.alpha = 1.702f, .limit = 7, .shift = 1, .interleaved = true};
    return shape;
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_gpt_oss() {
  return std::make_shared<GptOss>();
}

}  // namespace trident
