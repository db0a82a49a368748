// DeepSeek-V3 (DeepSeek-AI 2024): Llama with latent attention, and in some layers experts whose
// router takes sigmoids, by groups of experts, balanced by biases, beside one that all tokens take.
// It may have layers that predict further tokens, each with experts.
#include <cmath>

#include "models/llama.h"

namespace trident {
namespace {

class DeepSeekV3 final : public Llama {
 public:
  DeepSeekV3() : Llama(deepseek_v3_formats()) {}

  ModelConstraints constraints() const override {
    ModelConstraints constraints = Llama::constraints();
    constraints.doc = "is llama with latent attention, and experts that biases balance";
    constraints.grouped_queries = false;
    constraints.optional_mlp_bias = false;
    constraints.free_head_dim = false;
    constraints.latent_attention = true;
    constraints.multi_token = true;
    constraints.experts = {.layers = ExpertLayers::last,
                           .score_function = "sigmoid",
                           .norm_topk_prob = true,
                           .scaling = true,
                           .groups = true,
                           .shared = true,
                           .shared_multiple = true,
                           .bias = true,
                           .fp32_router = true};
    return constraints;
  }
  TransformerShape shape(const Config& config) const override {
    TransformerShape shape = Llama::shape(config);
    const ModelConfig& model = config.model;
    shape.latent = {.rank = model.kv_lora_rank,
                    .query_rank = model.q_lora_rank,
                    .plain = model.qk_head_dim,
                    .rotary = model.qk_pos_emb_head_dim,
                    .value = model.v_head_dim,
                    .score_factor = score_factor(model.rope_scaling)};
    shape.head_size = shape.latent.key_dim();
    shape.experts.fp32_router_weight = shape.experts.fp32_router;
    for (std::int64_t i = 0; i < shape.mtp_layers; ++i) {
      shape.experts.layers.push_back(shape.layers + i);
    }
    return shape;
  }

 private:
  // As transformers computes it (DeepseekV3Attention), for the scaling that reads the key.
  static float score_factor(const RopeScalingConfig& scaling) {
    if (scaling.mscale_all_dim == 0 || scaling.factor <= 1) return 1;
    const double one = 0.1 * scaling.mscale_all_dim * std::log(scaling.factor) + 1;
    return static_cast<float>(one * one);
  }
};

}  // namespace

std::shared_ptr<const Architecture> make_deepseek_v3() {
  return std::make_shared<DeepSeekV3>();
}

}  // namespace trident
