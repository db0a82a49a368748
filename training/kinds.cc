#include "training/kinds.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "training/layer_split.h"

namespace trident {
namespace {

// pipeline.layer_split "auto".
std::vector<std::int64_t> automatic_split(const Config& config) {
  const LayerCosts costs = layer_costs(config);
  const auto chunks = static_cast<int>(config.parallel.virtual_pipeline_model_parallel_size);
  // A file's own placement is not known here, nor that of a search: taken as looped.
  const bool v_shaped = config.pipeline.schedule_file.empty() && chunks == 2 &&
                        schedule_rules(config).chunks == ChunkRule::two;
  const auto p = static_cast<int>(config.parallel.pipeline_model_parallel_size);
  return balanced_split({.layers = config.model.num_layers,
                         .layer = costs.layer.total(),
                         .first = costs.embedding.total(),
                         .last = costs.head.total(),
                         .rank_of_stage = rank_of_stages(p, chunks, v_shaped)});
}

struct KindRules final : ConfigRules {
  explicit KindRules(Kinds rows) : kinds(std::move(rows)) {
    schedules.assign(kinds.schedules.begin(), kinds.schedules.end());
    for (const auto& [name, architecture] : kinds.architectures) {
      models.push_back(architecture->rules());
      models.back().name = name;
    }
    optimizers.assign(kinds.optimizers.begin(), kinds.optimizers.end());
    transports.assign(kinds.transports.begin(), kinds.transports.end());
    algorithms.assign(kinds.algorithms.begin(), kinds.algorithms.end());
    layer_split = automatic_split;
  }
  Kinds kinds;
};

// `rules` has found the name already.
template <class Row, class Rules>
const Row& row_of(const std::vector<Row>& rows, const Rules& rules) {
  return *find_kind(rows, rules.name);
}

}  // namespace

Kinds built_in_kinds() {
  return {.schedules = schedule_kinds(),
          .architectures = built_in_architectures(),
          .optimizers = optimizer_kinds(),
          .transports = transport_kinds(),
          .algorithms = algorithm_kinds()};
}

std::shared_ptr<const ConfigRules> rules_of(Kinds kinds) {
  return std::make_shared<const KindRules>(std::move(kinds));
}

const std::shared_ptr<const ConfigRules>& built_in_rules() {
  static const std::shared_ptr<const ConfigRules> rules = rules_of(built_in_kinds());
  return rules;
}

const Kinds& kinds_of(const Config& config) {
  const auto* rules = dynamic_cast<const KindRules*>(config.rules.get());
  if (rules == nullptr) throw Error("this config was not loaded with rules_of() any kinds");
  return rules->kinds;
}

const std::shared_ptr<const Architecture>& architecture_of(const Config& config) {
  return kinds_of(config).architectures.at(model_rules(config).name);
}

const OptimizerKind& optimizer_of(const Config& config) {
  return row_of(kinds_of(config).optimizers, optimizer_rules(config));
}

const TransportKind& transport_of(const Config& config) {
  return row_of(kinds_of(config).transports, transport_rules(config));
}

}  // namespace trident
