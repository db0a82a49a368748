// Everything that a name of a config may stand for: the rooms' tables together. A program that
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

// What configs have to know of them; holds them as well.
std::shared_ptr<const ConfigConstraints> constraints_of(Registry);
// Of built_in_registry(), made once.
const std::shared_ptr<const ConfigConstraints>& built_in_constraints();

// Those that a config was loaded with.
const Registry& registry_of(const Config&);
// The rows of what it names.
const std::shared_ptr<const Architecture>& architecture_of(const Config&);
const OptimizerKind& optimizer_of(const Config&);
const TransportKind& transport_of(const Config&);

}  // namespace trident
