// Compares a plan with a run's ledgers and traffic counters.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "support/training_run.h"

namespace trident::testing {

// Returns the bytes that this rank has sent so far, by group.
std::map<std::string, std::int64_t> sent_by(const Stepper& stepper);

struct PlanCase {
  const char* model;
  Layout layout;
  Overrides overrides;
};
// Expects that a seeded model's plan agrees with its run: states and traffic exactly, peaks within
// 5% of the total peak. `libraries`: bytes of workspace that libraries take in both plan and run;
// they don't widen the 5%. `constraints`: the constraints of the registry whose entries the
// overrides name.
void expect_planned(
    const PlanCase&, std::int64_t libraries = 0,
    const std::shared_ptr<const ConfigConstraints>& constraints = built_in_constraints());

}  // namespace trident::testing
