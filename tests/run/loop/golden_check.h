// The results of an independent fp64 implementation for the models of tests/golden, and the check
// of a run against them. A run passes if every loss, every gradient of the first iteration and
// every gradient norm is within 1e-5 relative.
#pragma once

#include <string>
#include <vector>

#include "run/loop/trainer.h"

namespace trident::testing {

struct Golden {
  std::vector<double> losses, grad_norms;
};
Golden read_golden(const std::string& model);

// Reports differences as GoogleTest failures. `directory` is the run's logging.dir. If the run is
// shorter than the golden one, only its own steps are compared.
void expect_golden(const std::string& model, const TrainingSummary& summary,
                   const std::string& directory);

}  // namespace trident::testing
