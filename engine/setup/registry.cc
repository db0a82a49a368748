#include "engine/setup/registry.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "engine/setup/layer_split.h"

namespace trident {
namespace {

struct RegistryConstraints final : ConfigConstraints {
  explicit RegistryConstraints(Registry rows) : registry(std::move(rows)) {
    schedules.assign(registry.schedules.begin(), registry.schedules.end());
    for (const auto& [name, architecture] : registry.architectures) {
      models.push_back(architecture->constraints());
      models.back().name = name;
    }
    optimizers.assign(registry.optimizers.begin(), registry.optimizers.end());
    transports.assign(registry.transports.begin(), registry.transports.end());
    algorithms.assign(registry.algorithms.begin(), registry.algorithms.end());
    layer_split = [](const Config& config) {
      return automatic_split(config, *architecture_of(config));
    };
  }
  Registry registry;
};

// `constraints` was found by this name, so the row exists.
template <class Row, class Constraints>
const Row& row_of(const std::vector<Row>& rows, const Constraints& constraints) {
  return *find_row(rows, constraints.name);
}

}  // namespace

Registry built_in_registry() {
  return {.schedules = schedule_registry(),
          .architectures = built_in_architectures(),
          .optimizers = optimizer_registry(),
          .transports = transport_registry(),
          .algorithms = algorithm_registry()};
}

std::shared_ptr<const ConfigConstraints> constraints_of(Registry registry) {
  return std::make_shared<const RegistryConstraints>(std::move(registry));
}

const std::shared_ptr<const ConfigConstraints>& built_in_constraints() {
  static const std::shared_ptr<const ConfigConstraints> constraints =
      constraints_of(built_in_registry());
  return constraints;
}

const Registry& registry_of(const Config& config) {
  const auto* constraints = dynamic_cast<const RegistryConstraints*>(config.constraints.get());
  if (constraints == nullptr)
    throw Error("this config was not loaded with constraints_of() a registry");
  return constraints->registry;
}

const std::shared_ptr<const Architecture>& architecture_of(const Config& config) {
  return registry_of(config).architectures.at(model_constraints(config).name);
}

const OptimizerKind& optimizer_of(const Config& config) {
  return row_of(registry_of(config).optimizers, optimizer_constraints(config));
}

const TransportKind& transport_of(const Config& config) {
  return row_of(registry_of(config).transports, transport_constraints(config));
}

}  // namespace trident
