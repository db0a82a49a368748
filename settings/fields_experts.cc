// Rows of the field table: the model's experts.
#include "settings/field_rows.h"

namespace trident::config_detail {

std::vector<Field> moe_fields() {
  const auto moe = []<class T>(T MoeConfig::*m) {
    return Member<T>([=](Config& config) -> T& { return config.model.moe.*m; });
  };
  using M = MoeConfig;
  return {
      {.path = "/model/moe/num_experts",
       .member = moe(&M::num_experts),
       .doc =
           [](const ConfigConstraints& constraints) {
             const auto names = names_where(constraints.models, [](const ModelConstraints& model) {
               return model.experts.layers != ExpertLayers::none;
             });
             return "Experts of a layer" +
                    (names.empty() ? std::string() : " (" + list_and(names) + ")") + ".";
           },
       .range = from(1, 65536),
       .derived = "none"},
      {.path = "/model/moe/router_topk",
       .member = moe(&M::router_topk),
       .doc = "Experts that each token takes; among equal scores the lowest number comes first.",
       .range = from(1, 65536)},
      {.path = "/model/moe/ffn_hidden_size",
       .member = moe(&M::ffn_hidden_size),
       .doc = "Inner width of an expert.",
       .range = from(1, 1e8),
       .derived = "model.ffn_hidden_size, where the model has experts"},
      {.path = "/model/moe/shared_expert_intermediate_size",
       .member = moe(&M::shared_expert_intermediate_size),
       .doc = "Inner width of an expert that every token takes in addition; 0: none.",
       .range = from(0, 1e8)},
      {.path = "/model/moe/shared_expert_gate",
       .member = moe(&M::shared_expert_gate),
       .doc =
           "Multiplies the shared expert's output by the sigmoid of one linear unit; a choice of "
           "the model.",
       .derived = "by the model"},
      {.path = "/model/moe/layer_freq",
       .member = moe(&M::layer_freq),
       .doc = "The layers with experts: a number n for every n-th, beginning with the first, or a "
              "list of a number for each layer, 1 for experts and 0 for the MLP.",
       .range = from(0, 1e5),
       .derived = "1, where the model has experts",
       .number_is_list = true},
      {.path = "/model/moe/router_score_function",
       .member = moe(&M::router_score_function),
       .doc = "The scores from the router's logits; a choice of the model.",
       .choices = {{"softmax"}, {"sigmoid"}},
       .derived = "by the model"},
      {.path = "/model/moe/norm_topk_prob",
       .member = moe(&M::norm_topk_prob),
       .doc = "Divides a token's weights by their sum.",
       .derived = "by the model"},
      {.path = "/model/moe/router_topk_scaling_factor",
       .member = moe(&M::router_topk_scaling_factor),
       .doc = "Multiplies a token's weights.",
       .range = fp32()},
      {.path = "/model/moe/router_num_groups",
       .member = moe(&M::router_num_groups),
       .doc = "Equal groups of experts; a token takes experts of router_group_topk of them alone.",
       .range = from(1, 65536)},
      {.path = "/model/moe/router_group_topk",
       .member = moe(&M::router_group_topk),
       .doc = "Groups that a token takes experts of: those whose two best scores sum to the most.",
       .range = from(1, 65536)},
      {.path = "/model/moe/router_load_balancing_type",
       .member = moe(&M::router_load_balancing_type),
       .doc = "seq_aux_loss adds E / (K · S) · Σ f P over the experts, f the choices and P the "
              "mean probability in one sample, a layer at a time: the mean over the samples of the "
              "global batch, summed over layers. aux_loss takes f and P in one micro-batch of one "
              "data-parallel rank, so it depends on batch.micro_batch_size. A model that begins "
              "with published weights takes none, unless its config.json has "
              "output_router_logits.",
       .choices = {{"seq_aux_loss"}, {"aux_loss"}, {"none"}}},
      {.path = "/model/moe/aux_loss_coeff",
       .member = moe(&M::aux_loss_coeff),
       .doc = "Factor of the balancing loss.",
       .range = fp32_or_zero()},
      {.path = "/model/moe/z_loss_coeff",
       .member = moe(&M::z_loss_coeff),
       .doc = "Factor of the z-loss, the mean over the tokens of the squared log-sum-exp of the "
              "router's logits, summed over layers.",
       .range = fp32_or_zero()},
      {.path = "/model/moe/router_enable_expert_bias",
       .member = moe(&M::router_enable_expert_bias),
       .doc =
           [](const ConfigConstraints& constraints) {
             const auto names = names_where(constraints.models, [](const ModelConstraints& model) {
               return model.experts.bias;
             });
             return "Balances without a loss: each expert's bias is added to its score for the "
                    "choice alone, and after a step moves towards the mean number of tokens" +
                    (names.empty() ? std::string() : " (" + list_and(names) + ")") + ".";
           },
       .derived = "by the model"},
      {.path = "/model/moe/router_bias_update_rate",
       .member = moe(&M::router_bias_update_rate),
       .doc = "By how much a bias moves.",
       .range = {.min = 0, .max = 1}},
      {.path = "/model/moe/router_dtype",
       .member = moe(&M::router_dtype),
       .doc =
           [](const ConfigConstraints& constraints) {
             const auto names = names_where(constraints.models, [](const ModelConstraints& model) {
               return model.experts.fp32_router;
             });
             return "fp32: the router's product is fp32 whatever precision.dtype" +
                    (names.empty()
                         ? std::string()
                         : "; so is its weight, also in saved folders, of " + list_and(names)) +
                    ". model: it is of precision.dtype.";
           },
       .choices = {{"model"}, {"fp32"}},
       .derived = "by the model"},
      {.path = "/model/moe/expert_capacity_factor",
       .member = moe(&M::expert_capacity_factor),
       .doc = "In training an expert takes at most ⌈this · K · S / E⌉ tokens of a sample of S, "
              "where each takes K of E experts.",
       .range = fp32(),
       .derived = "none: no token is dropped"},
      {.path = "/model/moe/token_drop_policy",
       .member = moe(&M::token_drop_policy),
       .doc = "Which tokens an expert beyond its capacity drops: those at later positions. "
              "(Megatron-LM's \"probs\", the least weights, lets later tokens decide about "
              "earlier ones.)",
       .choices = {{"position"}}},
  };
}

}  // namespace trident::config_detail
