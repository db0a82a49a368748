#include "engine/setup/kinds.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "engine/setup/layer_split.h"

namespace trident {
namespace {

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
    layer_split = [](const Config& config) {
      return automatic_split(config, *architecture_of(config));
    };
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
