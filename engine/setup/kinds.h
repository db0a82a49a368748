// Everything that a name of a config may stand for: the rooms' tables together. A program that
// links the library adds rows to built_in_kinds() and loads its configs with them:
//
//   Kinds kinds = built_in_kinds();
//   kinds.optimizers.push_back({{.name = "SignSGD"}, make_sign_sgd});
//   load_config("config.json", {}, {.rules = rules_of(kinds)});
#pragma once

#include <memory>
#include <vector>

#include "engine/optimizer/optimizer_kinds.h"
#include "models/architecture.h"
#include "parallel/collectives/algorithm_kinds.h"
#include "parallel/transport/transport_kinds.h"
#include "scheduler/schedules.h"
#include "settings/config.h"

namespace trident {

struct Kinds {
  std::vector<ScheduleKind> schedules;
  ArchitectureSet architectures;
  std::vector<OptimizerKind> optimizers;
  std::vector<TransportKind> transports;
  std::vector<AlgorithmKind> algorithms;
};

Kinds built_in_kinds();

// What configs have to know of them; holds them as well.
std::shared_ptr<const ConfigRules> rules_of(Kinds);
// Of built_in_kinds(), made once.
const std::shared_ptr<const ConfigRules>& built_in_rules();

// Those that a config was loaded with.
const Kinds& kinds_of(const Config&);
// The rows of what it names.
const std::shared_ptr<const Architecture>& architecture_of(const Config&);
const OptimizerKind& optimizer_of(const Config&);
const TransportKind& transport_of(const Config&);

}  // namespace trident
