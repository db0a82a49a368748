// A plan beside what a run's ledgers and counters say.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "support/training_run.h"

namespace trident::testing {

// Bytes that this rank has sent so far, by group.
std::map<std::string, std::int64_t> sent_by(const Stepper& stepper);

struct PlanCase {
  const char* model;
  Layout layout;
  Overrides overrides;
};
// A seeded model's plan: states and traffic exactly, peaks within 5% of the whole. `libraries`:
// bytes of workspace that libraries take on both sides, and that don't widen the 5%. `rules`: of
// the kinds that the overrides name.
void expect_planned(
    const PlanCase&, std::int64_t libraries = 0,
    const std::shared_ptr<const ConfigConstraints>& constraints = built_in_constraints());

}  // namespace trident::testing
