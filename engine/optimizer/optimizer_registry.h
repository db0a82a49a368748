// The optimizers' table. A new one is a file that makes its UpdateRule (engine/optimizer/sgd.cc),
// a row and, above the table, the maker's declaration.
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

// Those of this library.
const std::vector<OptimizerKind>& optimizer_registry();

}  // namespace trident
