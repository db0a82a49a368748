// The registry: the tables of all names that a config may use, from all libraries. A program that
// links the library adds rows to built_in_registry() and loads its configs with them:
//
//   Registry registry = built_in_registry();
//   registry.optimizers.push_back({{.name = "SignSGD"}, make_sign_sgd});
//   load_config("config.json", {}, {.constraints = constraints_of(registry)});
#pragma once

#include <memory>
#include <vector>

#include "engine/optimizer/optimizer_registry.h"
#include "models/architecture.h"
#include "parallel/collectives/algorithm_registry.h"
#include "parallel/transport/transport_registry.h"
#include "scheduler/schedules.h"
#include "settings/config.h"

namespace trident {

struct Registry {
  std::vector<ScheduleKind> schedules;
  ArchitectureSet architectures;
  std::vector<OptimizerKind> optimizers;
  std::vector<TransportKind> transports;
  std::vector<AlgorithmKind> algorithms;
};

Registry built_in_registry();

// The constraints that configs need. The result also holds the registry.
std::shared_ptr<const ConfigConstraints> constraints_of(Registry);
// The constraints of built_in_registry(), made once.
const std::shared_ptr<const ConfigConstraints>& built_in_constraints();

// The registry that a config was loaded with. Throws Error if it was loaded without one.
const Registry& registry_of(const Config&);
// The rows that a config names.
const std::shared_ptr<const Architecture>& architecture_of(const Config&);
const OptimizerKind& optimizer_of(const Config&);
const TransportKind& transport_of(const Config&);

}  // namespace trident
