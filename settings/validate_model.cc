// The constraints on a model's sizes.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "settings/fields.h"
#include "settings/paths.h"
#include "settings/rope_types.h"

namespace trident::config_detail {
namespace {

// ", or use llama": the models that have it.
template <class Has>
std::string or_use(const ConfigConstraints& constraints, const Has& has) {
  const auto names = names_where(constraints.models, has);
  return names.empty() ? "" : ", or use " + list_or(names);
}

void validate_head_size(const Config& config, const ModelConstraints* constraints,
                        Problems& problems) {
  const ModelConfig& model = config.model;
  if (!problems.sound({kHidden, kHeads, kHeadDim})) return;
  const bool rotary = constraints != nullptr && constraints->positions == Positions::rotary;
  const bool divides = model.hidden_size % model.num_attention_heads == 0;
  const bool given = !divides || model.head_dim != model.hidden_size / model.num_attention_heads;
  const bool needs_whole = constraints == nullptr || constraints->heads_divide_width;
  if (!divides && (needs_whole || model.head_dim == 0)) {
    const std::int64_t unit = model.num_attention_heads * (rotary && model.head_dim == 0 ? 2 : 1);
    const bool may_give = constraints != nullptr && constraints->free_head_dim && !needs_whole;
    const bool has_given = needs_whole && model.head_dim > 0 && constraints != nullptr;
    problems.add(
        kHidden,
        fmt::format("{} is not a multiple of num_attention_heads ({}){}; use {}{}",
                    model.hidden_size, model.num_attention_heads,
                    has_given ? ", which " + constraints->name + " needs" : "",
                    multiples_near(unit, model.hidden_size), may_give ? ", or give head_dim" : ""));
  } else if (given && constraints != nullptr && !constraints->free_head_dim) {
    problems.add(kHeadDim,
                 fmt::format("{} differs from hidden_size / num_attention_heads, which {}'s heads "
                             "have; leave it out{}",
                             model.head_dim, constraints->name,
                             or_use(*config.constraints, &ModelConstraints::free_head_dim)));
  } else if (given && rotary && model.head_dim % 2 != 0) {
    problems.add(kHeadDim, fmt::format("{} is odd, but rotary positions turn pairs; use {}",
                                       model.head_dim, multiples_near(2, model.head_dim)));
  } else if (rotary && model.head_dim % 2 != 0) {
    problems.add(kHidden,
                 fmt::format("{} / num_attention_heads ({}) = {} is odd, but rotary positions "
                             "turn pairs; use {}",
                             model.hidden_size, model.num_attention_heads, model.head_dim,
                             multiples_near(2 * model.num_attention_heads, model.hidden_size)));
  }
}

// The sizes of latent attention.
void validate_latent_attention(const Config& config, const ModelConstraints& constraints,
                               Problems& problems) {
  const ModelConfig& model = config.model;
  const auto refuse = [&](const char* path, bool wrong, const std::string& what) {
    if (wrong && problems.sound(path)) problems.add(path, what);
  };
  constexpr auto kRotary = "/model/qk_pos_emb_head_dim";
  for (const auto& [path, size, needed] :
       {std::tuple("/model/kv_lora_rank", model.kv_lora_rank, true),
        std::tuple("/model/q_lora_rank", model.q_lora_rank, false),
        std::tuple("/model/qk_head_dim", model.qk_head_dim, true),
        std::tuple(kRotary, model.qk_pos_emb_head_dim, true),
        std::tuple("/model/v_head_dim", model.v_head_dim, true)}) {
    if (constraints.latent_attention) {
      refuse(path, needed && size == 0, fmt::format("must be given for {}", constraints.name));
    } else {
      refuse(path, size != 0,
             fmt::format("{} has no latent attention; leave it out{}", constraints.name,
                         or_use(*config.constraints, &ModelConstraints::latent_attention)));
    }
  }
  if (!constraints.latent_attention) return;
  refuse(kRotary, model.qk_pos_emb_head_dim % 2 != 0,
         fmt::format("{} is odd, but rotary positions turn pairs; use {}",
                     model.qk_pos_emb_head_dim, multiples_near(2, model.qk_pos_emb_head_dim)));
  refuse(kHeadDim, problems.sound(kRotary) && model.head_dim != model.qk_pos_emb_head_dim,
         fmt::format("{} differs from qk_pos_emb_head_dim ({}); leave it out", model.head_dim,
                     model.qk_pos_emb_head_dim));
}

void validate_query_groups(const Config& config, const ModelConstraints& constraints,
                           Problems& problems) {
  const ModelConfig& model = config.model;
  if (!problems.sound({kGroups, kHeads})) return;
  if (!constraints.grouped_queries && model.num_query_groups != model.num_attention_heads) {
    problems.add(kGroups,
                 fmt::format("{} differs from num_attention_heads ({}), but {} has no "
                             "grouped queries; leave it out{}",
                             model.num_query_groups, model.num_attention_heads, constraints.name,
                             or_use(*config.constraints, &ModelConstraints::grouped_queries)));
  } else if (model.num_attention_heads % model.num_query_groups != 0) {
    problems.add(kGroups,
                 fmt::format("{} does not divide num_attention_heads ({}); use {}",
                             model.num_query_groups, model.num_attention_heads,
                             divisors_near(model.num_attention_heads, model.num_query_groups)));
  }
}

void validate_window(const Config& config, const ModelConstraints& constraints,
                     Problems& problems) {
  constexpr auto kWindow = "/model/sliding_window", kWindowLayers = "/model/window_layers";
  const ModelConfig& model = config.model;
  if (!problems.sound({kWindow, kWindowLayers, kLayers})) return;
  if (!model.sliding_window) {
    if (!model.window_layers.empty()) {
      problems.add(kWindowLayers, "needs a sliding_window; give one, or leave this out");
    }
    return;
  }
  if (constraints.window == WindowRule::none) {
    problems.add(kWindow, fmt::format("{} has no window; leave it out{}", constraints.name,
                                      or_use(*config.constraints, [](const ModelConstraints& one) {
                                        return one.window != WindowRule::none;
                                      })));
    return;
  }
  const std::vector<std::int64_t>& layers = model.window_layers;
  if (layers.empty()) {
    problems.add(kWindowLayers, "names no layer; leave sliding_window out for none");
  } else if (std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) !=
             layers.end()) {
    problems.add(kWindowLayers, "needs the layers in ascending order, each once");
  } else if (layers.back() >= model.num_layers) {
    problems.add(kWindowLayers,
                 fmt::format("{} is beyond the last layer; num_layers is {}, so use at most {}",
                             layers.back(), model.num_layers, model.num_layers - 1));
  } else if (constraints.window == WindowRule::all_layers &&
             std::ssize(layers) != model.num_layers) {
    problems.add(
        kWindowLayers,
        fmt::format("{} has the window in all layers or in none; leave it out", constraints.name));
  }
}

// A key of rope_scaling that the type does not read would have no effect.
void validate_rope_scaling(const Config& config, const ModelConstraints& constraints,
                           Problems& problems) {
  constexpr auto kType = "/model/rope_scaling/rope_type", kFactor = "/model/rope_scaling/factor";
  const RopeScalingConfig& scaling = config.model.rope_scaling;
  if (!problems.sound(kType)) return;
  const RopeType& type = *find_rope_type(scaling.rope_type);
  if (type.name != "default" && constraints.positions != Positions::rotary) {
    problems.add(kType, constraints.name + " has no rotary positions; leave it out" +
                            or_use(*config.constraints, [](const ModelConstraints& one) {
                              return one.positions == Positions::rotary;
                            }));
    return;
  }
  Config usual = config;
  usual.model.rope_scaling = {};
  for (const Field& field : fields()) {
    if (parent(field.path) != "/model/rope_scaling" || field.path == kType) continue;
    if (!problems.sound(field.path) || type.reads(leaf(field.path))) continue;
    if (value_of(field, config) != value_of(field, usual)) {
      problems.add(field.path, fmt::format("rope_type \"{}\" does not read it; leave it out",
                                           scaling.rope_type));
    }
  }
  if (type.reads("factor") && scaling.factor == 0 && problems.sound(kFactor)) {
    problems.add(kFactor, fmt::format("must be given for rope_type \"{}\"", scaling.rope_type));
  }
  constexpr auto kLow = "/model/rope_scaling/low_freq_factor";
  if (type.reads("low_freq_factor") && scaling.low_freq_factor >= scaling.high_freq_factor &&
      problems.sound({kLow, "/model/rope_scaling/high_freq_factor"})) {
    problems.add(kLow, fmt::format("{} is not less than high_freq_factor ({})",
                                   scaling.low_freq_factor, scaling.high_freq_factor));
  }
}

// The layers that predict further tokens.
void validate_multi_token(const Config& config, const ModelConstraints& constraints,
                          Problems& problems) {
  const std::int64_t layers = config.model.mtp_num_layers;
  constexpr auto kFactor = "/model/mtp_loss_scaling_factor";
  if (layers == 0) {
    if (config.model.mtp_loss_scaling_factor != ModelConfig().mtp_loss_scaling_factor &&
        problems.sound(kFactor)) {
      problems.add(kFactor, fmt::format("has no effect without mtp_num_layers; leave it out{}",
                                        constraints.multi_token ? ", or give that" : ""));
    }
    return;
  }
  if (!problems.sound(kMtpLayers)) return;
  if (!constraints.multi_token) {
    problems.add(
        kMtpLayers,
        fmt::format("{} has no layers that predict further tokens; use 0{}", constraints.name,
                    or_use(*config.constraints, &ModelConstraints::multi_token)));
  } else if (layers >= config.data.sequence_length && problems.sound("/data/sequence_length")) {
    problems.add(kMtpLayers,
                 fmt::format("a sequence of {} tokens has none that far ahead; use at most {}",
                             config.data.sequence_length, config.data.sequence_length - 1));
  }
}

}  // namespace

void validate_model(const Config& config, Problems& problems) {
  const ModelConfig& model = config.model;
  const ModelConstraints* const constraints =
      problems.sound(kModel) ? &model_constraints(config) : nullptr;
  if (constraints == nullptr || !constraints->latent_attention) {
    validate_head_size(config, constraints, problems);
  }
  if (constraints != nullptr) {
    validate_latent_attention(config, *constraints, problems);
    validate_multi_token(config, *constraints, problems);
    validate_query_groups(config, *constraints, problems);
    validate_window(config, *constraints, problems);
    validate_rope_scaling(config, *constraints, problems);
    if (problems.sound("/model/qk_norm") && model.qk_norm != constraints->qk_norm) {
      problems.add("/model/qk_norm",
                   fmt::format("{} has {}norms of queries and keys; leave it out",
                               constraints->name, constraints->qk_norm ? "" : "no "));
    }
  }
  if (constraints != nullptr && constraints->positions == Positions::learned &&
      problems.sound("/model/rotary_base") && model.rotary_base != ModelConfig{}.rotary_base) {
    const auto rotary = [](const ModelConstraints& one) {
      return one.positions == Positions::rotary;
    };
    problems.add("/model/rotary_base", constraints->name +
                                           " has no rotary positions; leave it out" +
                                           or_use(*config.constraints, rotary));
  }
  for (const auto& [path, asked, optional] :
       {std::tuple("/model/attention_bias", model.attention_bias,
                   &ModelConstraints::optional_attention_bias),
        std::tuple("/model/mlp_bias", model.mlp_bias, &ModelConstraints::optional_mlp_bias)}) {
    if (!asked || constraints == nullptr || constraints->*optional || !problems.sound(path)) {
      continue;
    }
    problems.add(path, fmt::format("{}'s biases are fixed; leave it out{}", constraints->name,
                                   or_use(*config.constraints, optional)));
  }
  constexpr auto kPadding = "/model/pad_token_id";
  if (model.pad_token_id && problems.sound({kPadding, "/model/vocab_size"}) &&
      *model.pad_token_id >= model.vocab_size) {
    problems.add(kPadding,
                 fmt::format("{} is beyond vocab_size ({}); use at most {}", *model.pad_token_id,
                             model.vocab_size, model.vocab_size - 1));
  }
  if (model.pad_token_id && constraints != nullptr && !constraints->padding_row &&
      problems.sound(kPadding)) {
    problems.add(
        kPadding,
        fmt::format("{}'s embedding has no padding token; leave it out{}", constraints->name,
                    or_use(*config.constraints, &ModelConstraints::padding_row)));
  }
  if (problems.sound({"/data/sequence_length", "/model/max_position_embeddings"}) &&
      config.data.sequence_length > model.max_position_embeddings) {
    problems.add("/data/sequence_length",
                 fmt::format("{} is more than model.max_position_embeddings ({}); use at most {}",
                             config.data.sequence_length, model.max_position_embeddings,
                             model.max_position_embeddings));
  }
}

}  // namespace trident::config_detail
