// The registry of optimizers. To add an optimizer, write a file that makes its UpdateRule (as
// engine/optimizer/sgd.cc), a row, and the maker's declaration above the table.
#pragma once

#include <memory>
#include <vector>

#include "engine/optimizer/optimizer.h"
#include "settings/config.h"
#include "settings/constraints.h"

namespace trident {

struct OptimizerKind : OptimizerConstraints {
  std::unique_ptr<UpdateRule> (*make)(const OptimizerParams&) = nullptr;
};

// The optimizers of this library.
const std::vector<OptimizerKind>& optimizer_registry();

}  // namespace trident
