// The constraints on a model's sizes.
#include <fmt/format.h>

#include <utility>

#include "settings/fields.h"
#include "settings/paths.h"

namespace trident::config_detail {
namespace {

void validate_head_size(const Config& config, const ModelConstraints* constraints,
                        Problems& problems) {
  const ModelConfig& model = config.model;
  if (!problems.sound({kHidden, kHeads})) return;
  const bool rotary = constraints != nullptr && constraints->positions == Positions::rotary;
  if (model.hidden_size % model.num_attention_heads != 0) {
    const std::int64_t unit = model.num_attention_heads * (rotary ? 2 : 1);
    problems.add(kHidden, fmt::format("{} is not a multiple of num_attention_heads ({}); use {}",
                                      model.hidden_size, model.num_attention_heads,
                                      multiples_near(unit, model.hidden_size)));
  } else if (rotary && config.head_dim() % 2 != 0) {
    problems.add(kHidden,
                 fmt::format("{} / num_attention_heads ({}) = {} is odd, but rotary positions "
                             "turn pairs; use {}",
                             model.hidden_size, model.num_attention_heads, config.head_dim(),
                             multiples_near(2 * model.num_attention_heads, model.hidden_size)));
  }
}

// ", or use llama": the models that have it.
template <class Has>
std::string or_use(const Config& config, const Has& has) {
  const auto names = names_where(config.constraints->models, has);
  return names.empty() ? "" : ", or use " + list_or(names);
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
                             or_use(config, &ModelConstraints::grouped_queries)));
  } else if (model.num_attention_heads % model.num_query_groups != 0) {
    problems.add(kGroups,
                 fmt::format("{} does not divide num_attention_heads ({}); use {}",
                             model.num_query_groups, model.num_attention_heads,
                             divisors_near(model.num_attention_heads, model.num_query_groups)));
  }
}

}  // namespace

void validate_model(const Config& config, Problems& problems) {
  const ModelConfig& model = config.model;
  const ModelConstraints* const constraints =
      problems.sound(kModel) ? &model_constraints(config) : nullptr;
  validate_head_size(config, constraints, problems);
  if (constraints != nullptr) validate_query_groups(config, *constraints, problems);
  if (constraints != nullptr && constraints->positions == Positions::learned &&
      problems.sound("/model/rotary_base") && model.rotary_base != ModelConfig{}.rotary_base) {
    const auto rotary = [](const ModelConstraints& one) {
      return one.positions == Positions::rotary;
    };
    problems.add(
        "/model/rotary_base",
        constraints->name + " has no rotary positions; leave it out" + or_use(config, rotary));
  }
  for (const auto& [path, asked] : {std::pair("/model/attention_bias", model.attention_bias),
                                    std::pair("/model/mlp_bias", model.mlp_bias)}) {
    if (!asked || constraints == nullptr || constraints->optional_biases || !problems.sound(path)) {
      continue;
    }
    problems.add(path, fmt::format("{}'s biases are fixed; leave it out{}", constraints->name,
                                   or_use(config, &ModelConstraints::optional_biases)));
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
    problems.add(kPadding,
                 fmt::format("{}'s embedding has no padding token; leave it out{}",
                             constraints->name, or_use(config, &ModelConstraints::padding_row)));
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
