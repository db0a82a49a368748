// What an independent implementation in fp64 found for the models of tests/golden, and the check of
// a run against it. A run meets it when every loss, every gradient of the first iteration and every
// gradient norm is within 1e-5 relative.
#pragma once

#include <string>
#include <vector>

#include "run/loop/trainer.h"

namespace trident::testing {

struct Golden {
  std::vector<double> losses, grad_norms;
};
Golden read_golden(const std::string& model);

// `directory` is the run's logging.dir. Of a shorter run its steps are compared. Reports as
// GoogleTest failures.
void expect_golden(const std::string& model, const TrainingSummary& summary,
                   const std::string& directory);

}  // namespace trident::testing
