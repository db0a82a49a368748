// Every module of a transformer, made alike so that one test runs them all: how it is cut over the
// tensor group, and what it computes by the fp64 reference.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "models/module.h"
#include "models/transformer.h"
#include "parallel/tensor/linear.h"
#include "tests/models/reference.h"

namespace trident::testing {

using reference::Values;
using reference::Weights;

struct LayerCase {
  std::string name;
  TransformerShape shape;
  std::function<std::unique_ptr<Module>(const TensorParallel&, const TransformerShape&)> make;
  // Which part of input and output a rank holds; an input without extents is the tokens.
  std::function<Placement(const TensorParallel&, const TransformerShape&)> input, output;
  std::function<Values(const TransformerShape&, const Weights&, const reference::Batch&,
                       const Values& x)>
      forward;
  bool ends_model = false;  // the output is losses
};

// What GoogleTest shows of a case.
inline void PrintTo(const LayerCase& layer, std::ostream* out) {
  *out << layer.name;
}

inline constexpr std::int64_t kBatch = 2, kSequence = 6, kRows = kBatch * kSequence;

std::vector<LayerCase> layer_cases();

// The values of a rank's part of a global tensor; padding is zero. And back into the whole.
Values part_of(const Values& whole, const Placement&);
void place(const Values& part, const Placement&, Values& whole);

}  // namespace trident::testing
