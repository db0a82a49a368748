// The optimizers' table. A new one is a file that makes its UpdateRule (training/optimizer/sgd.cc),
// a row and, above the table, the maker's declaration.
#pragma once

#include <memory>
#include <vector>

#include "config/config.h"
#include "config/kinds.h"
#include "training/optimizer/optimizer.h"

namespace trident {

struct OptimizerKind : OptimizerRules {
  std::unique_ptr<UpdateRule> (*make)(const OptimizerParams&) = nullptr;
};

// Those of this library.
const std::vector<OptimizerKind>& optimizer_kinds();

}  // namespace trident
