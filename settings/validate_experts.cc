// The constraints on a model's experts and on their layout over the ranks.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "settings/fields.h"
#include "settings/paths.h"

namespace trident::config_detail {
namespace {

constexpr auto kSection = "/model/moe";
constexpr auto kShared = "/model/moe/shared_expert_intermediate_size";
constexpr auto kNumGroups = "/model/moe/router_num_groups";
constexpr auto kGroupTopk = "/model/moe/router_group_topk";

// ", or use mixtral": the models whose experts have it.
template <class Has>
std::string or_use_experts(const ConfigConstraints& constraints, const Has& has) {
  const auto names = names_where(constraints.models, [&](const ModelConstraints& one) {
    return one.experts.layers != ExpertLayers::none && std::invoke(has, one.experts);
  });
  return names.empty() ? "" : ", or use " + list_or(names);
}

// A key of the section would have no effect.
void validate_without_experts(const Config& config, Problems& problems) {
  Config usual = config;
  usual.model.moe = {};
  for (const Field& field : fields()) {
    const bool of_model = field.path == "/model/moe/router_score_function" ||
                          field.path == "/model/moe/norm_topk_prob" ||
                          field.path == "/model/moe/router_dtype" ||
                          field.path == "/model/moe/router_enable_expert_bias" ||
                          field.path == "/model/moe/shared_expert_gate";
    if (parent(field.path) != kSection || of_model || !problems.sound(field.path)) continue;
    if (value_of(field, config) == value_of(field, usual)) continue;
    problems.add(field.path, "has no effect without num_experts; leave it out, or give that");
  }
  for (const auto& [path, size] :
       {std::pair(kExpertParallel, config.parallel.expert_model_parallel_size),
        std::pair(kExpertTensor, config.parallel.expert_tensor_parallel_size)}) {
    if (size <= 1 || !problems.sound(path)) continue;
    problems.add(path, fmt::format("{} ranks need experts, but the model has none; use 1", size));
  }
}

void validate_choices_of_model(const Config& config, const ModelConstraints& constraints,
                               Problems& problems) {
  const MoeConfig& moe = config.model.moe;
  const ExpertConstraints& experts = constraints.experts;
  const auto refuse = [&](const char* path, bool other, const std::string& what) {
    if (other && problems.sound(path)) problems.add(path, what);
  };
  refuse("/model/moe/router_score_function", moe.router_score_function != experts.score_function,
         fmt::format("{}'s router takes \"{}\"; leave it out", constraints.name,
                     experts.score_function));
  refuse("/model/moe/norm_topk_prob",
         experts.fixed_norm && moe.norm_topk_prob != experts.norm_topk_prob,
         fmt::format("{}'s weights are {}divided by their sum; leave it out{}", constraints.name,
                     experts.norm_topk_prob ? "" : "not ",
                     or_use_experts(*config.constraints,
                                    [](const ExpertConstraints& one) { return !one.fixed_norm; })));
  refuse("/model/moe/router_topk_scaling_factor",
         !experts.scaling && moe.router_topk_scaling_factor != 1,
         fmt::format("{} has no factor of its router's weights; leave it out{}", constraints.name,
                     or_use_experts(*config.constraints, &ExpertConstraints::scaling)));
  refuse(kNumGroups, !experts.groups && moe.router_num_groups != 1,
         fmt::format("{}'s experts form no groups; leave it out{}", constraints.name,
                     or_use_experts(*config.constraints, &ExpertConstraints::groups)));
  refuse("/model/moe/router_enable_expert_bias", !experts.bias && moe.router_enable_expert_bias,
         fmt::format("{}'s files have no biases of experts; leave it out{}", constraints.name,
                     or_use_experts(*config.constraints, &ExpertConstraints::bias)));
  refuse("/model/moe/router_enable_expert_bias", experts.bias && !moe.router_enable_expert_bias,
         fmt::format("{} has biases of experts; leave it out, and give router_bias_update_rate 0 "
                     "to keep them",
                     constraints.name));
  refuse(kShared, !experts.shared && moe.shared_expert_intermediate_size != 0,
         fmt::format("{} has no shared expert; leave it out{}", constraints.name,
                     or_use_experts(*config.constraints, &ExpertConstraints::shared)));
  if (experts.layers == ExpertLayers::all && problems.sound(kFfn)) {
    refuse(kExpertFfn, moe.ffn_hidden_size != config.model.ffn_hidden_size,
           fmt::format("{} differs from model.ffn_hidden_size ({}), which {} has for the width of "
                       "its experts; leave it out",
                       moe.ffn_hidden_size, config.model.ffn_hidden_size, constraints.name));
  }
  const std::int64_t shared = moe.shared_expert_intermediate_size;
  refuse(kShared, (experts.shared_gate || experts.shared_multiple) && shared == 0,
         fmt::format("is missing; {} has a shared expert", constraints.name));
  if (experts.shared_multiple && problems.sound({kShared, kExpertFfn}) &&
      shared % moe.ffn_hidden_size != 0) {
    problems.add(kShared, fmt::format("{} is not a multiple of ffn_hidden_size ({}), as {}'s files "
                                      "need; use {}",
                                      shared, moe.ffn_hidden_size, constraints.name,
                                      multiples_near(moe.ffn_hidden_size, shared)));
  }
  refuse("/model/moe/shared_expert_gate", moe.shared_expert_gate != experts.shared_gate,
         fmt::format("{}'s shared expert has {}gate; leave it out", constraints.name,
                     experts.shared_gate ? "a " : "no "));
}

void validate_router(const MoeConfig& moe, Problems& problems) {
  if (!problems.sound({kExperts, kTopk, kNumGroups, kGroupTopk})) return;
  const std::int64_t groups = moe.router_num_groups;
  if (moe.num_experts % groups != 0) {
    problems.add(kNumGroups, fmt::format("{} does not divide num_experts ({}); use {}", groups,
                                         moe.num_experts, divisors_near(moe.num_experts, groups)));
    return;
  }
  if (groups > 1 && moe.num_experts / groups < 2) {
    problems.add(kNumGroups,
                 fmt::format("{} groups of one expert have no two best scores; use at most {}",
                             groups, moe.num_experts / 2));
    return;
  }
  if (moe.router_group_topk > groups) {
    problems.add(kGroupTopk, fmt::format("{} is more than router_num_groups ({}); use at most {}",
                                         moe.router_group_topk, groups, groups));
    return;
  }
  const std::int64_t most =
      groups > 1 ? moe.num_experts / groups * moe.router_group_topk : moe.num_experts;
  if (moe.router_topk > most) {
    problems.add(kTopk, fmt::format("{} is more than the {} experts that a token can choose from; "
                                    "use at most {}",
                                    moe.router_topk, most, most));
  }
}

void validate_expert_layers(const Config& config, const ModelConstraints* constraints,
                            Problems& problems) {
  const std::vector<std::int64_t>& layers = config.model.moe.layer_freq;
  if (!problems.sound({kLayerFreq, kLayers})) return;
  const auto is_flag = [](std::int64_t one) { return one == 0 || one == 1; };
  if (std::ssize(layers) != config.model.num_layers) {
    problems.add(kLayerFreq, fmt::format("has {} numbers; use one for each of num_layers ({})",
                                         layers.size(), config.model.num_layers));
  } else if (!std::ranges::all_of(layers, is_flag)) {
    problems.add(kLayerFreq, "needs 1 for a layer with experts, 0 for one without");
  } else if (std::ranges::find(layers, 1) == layers.end()) {
    problems.add(kLayerFreq, "gives no layer experts; leave num_experts out for none");
  } else if (constraints != nullptr && constraints->experts.layers == ExpertLayers::last &&
             !std::ranges::is_sorted(layers)) {
    problems.add(kLayerFreq, fmt::format("{} has experts in all layers but the first ones; use a "
                                         "list of zeros, then ones",
                                         constraints->name));
  } else if (constraints != nullptr && constraints->experts.layers == ExpertLayers::all &&
             std::ranges::find(layers, 0) != layers.end()) {
    problems.add(kLayerFreq,
                 fmt::format("{} has experts in all layers; leave it out{}", constraints->name,
                             or_use_experts(*config.constraints, [](const ExpertConstraints& one) {
                               return one.layers == ExpertLayers::any;
                             })));
  }
}

// The sizes of the experts' groups of ranks.
void validate_expert_ranks(const Config& config, Problems& problems) {
  const MoeConfig& moe = config.model.moe;
  const std::int64_t parallel = config.parallel.expert_model_parallel_size,
                     tensor = config.parallel.expert_tensor_parallel_size;
  // The ranks that the two sizes divide; 0, which any number divides, if they aren't known.
  const bool known = axes_sound(config.parallel, problems);
  const std::int64_t ranks = known ? folded_ranks(config.parallel.axes()) : 0;
  const auto choices = [&](std::int64_t size, std::int64_t other, std::int64_t asked) {
    other = std::max<std::int64_t>(1, other);  // it may be unsound
    return divisors_near(ranks % other == 0 ? std::gcd(size, ranks / other) : size, asked);
  };
  if (problems.sound({kExpertParallel, kExperts}) && moe.num_experts % parallel != 0) {
    problems.add(kExpertParallel,
                 fmt::format("{} does not divide num_experts ({}); use {}", parallel,
                             moe.num_experts, choices(moe.num_experts, tensor, parallel)));
  }
  if (problems.sound({kExpertTensor, kExpertFfn}) && moe.ffn_hidden_size % tensor != 0) {
    problems.add(kExpertTensor,
                 fmt::format("{} does not divide model.moe.ffn_hidden_size ({}); use {}", tensor,
                             moe.ffn_hidden_size, choices(moe.ffn_hidden_size, parallel, tensor)));
  }
  if (!problems.sound({kExpertParallel, kExpertTensor}) || !known) return;
  if (ranks % (parallel * tensor) == 0) return;
  // The nearest size of expert parallelism for this tensor size, or the other way round.
  const bool fits = ranks % tensor == 0;
  problems.add(
      fits ? kExpertParallel : kExpertTensor,
      fmt::format(
          "expert ({}) × expert tensor ({}) = {} does not divide the {} ranks of a pipeline "
          "stage; use {} here",
          parallel, tensor, parallel * tensor, ranks,
          fits ? choices(moe.num_experts, tensor, parallel)
               : choices(moe.ffn_hidden_size, ranks % parallel == 0 ? parallel : 1, tensor)));
}

}  // namespace

void validate_experts(const Config& config, Problems& problems) {
  if (!problems.sound(kExperts)) return;
  const ModelConstraints* const constraints =
      problems.sound(kModel) ? &model_constraints(config) : nullptr;
  const auto has_experts = [](const ModelConstraints& model) {
    return model.experts.layers != ExpertLayers::none;
  };
  const MoeConfig& moe = config.model.moe;
  if (!moe.has_experts()) {
    if (constraints != nullptr && has_experts(*constraints)) {
      problems.add(kExperts, fmt::format("is missing; {} has experts", constraints->name));
    } else {
      validate_without_experts(config, problems);
    }
    return;
  }
  if (constraints != nullptr && !has_experts(*constraints)) {
    const auto others = names_where(config.constraints->models, has_experts);
    problems.add(kExperts, fmt::format("{} has no experts; leave it out{}", constraints->name,
                                       others.empty() ? "" : ", or use " + list_or(others)));
    return;
  }
  if (constraints != nullptr) validate_choices_of_model(config, *constraints, problems);
  validate_router(config.model.moe, problems);
  validate_expert_layers(config, constraints, problems);
  validate_expert_ranks(config, problems);
  // The biases of one layer are then sharded in two ways, and sums of factored states over both.
  const ParallelConfig& parallel = config.parallel;
  if (constraints != nullptr && constraints->experts.projection_biases &&
      config.optimizer.type == "Adafactor" && parallel.expert_model_parallel_size > 1 &&
      parallel.expert_tensor_parallel_size > 1 &&
      problems.sound({kExpertParallel, kExpertTensor, "/optimizer/type"})) {
    problems.add(
        kExpertTensor,
        fmt::format("{} ranks an expert don't fit {} different ones with Adafactor and {}'s "
                    "biases; use 1 here or there, or another optimizer",
                    parallel.expert_tensor_parallel_size, parallel.expert_model_parallel_size,
                    constraints->name));
  }
}

}  // namespace trident::config_detail
