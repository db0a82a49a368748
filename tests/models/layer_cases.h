// Every module of a transformer behind one interface, so that one test runs them all: its sharding
// over the tensor group, and its result by the fp64 reference.
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
  std::function<std::unique_ptr<Module>(const ParallelContext&, const TransformerShape&)> make;
  // The slices of input and output that a rank holds. An input without extents is the tokens.
  std::function<Placement(const ParallelContext&, const TransformerShape&)> input, output;
  std::function<Values(const TransformerShape&, const Weights&, const reference::Batch&,
                       const Values& x)>
      forward;
  bool ends_model = false;  // the output is losses
  // The module's auxiliary losses, summed over the tokens; may be empty.
  std::function<double(const TransformerShape&, const Weights&, const reference::Batch&,
                       const Values& x)>
      auxiliary = {};
  bool has_experts = false;
};

// GoogleTest prints the name of a case.
inline void PrintTo(const LayerCase& layer, std::ostream* out) {
  *out << layer.name;
}

inline constexpr std::int64_t kBatch = 2, kSequence = 6, kRows = kBatch * kSequence;

std::vector<LayerCase> layer_cases();

// part_of() takes a rank's shard of a global tensor, with zero padding; place() writes a shard
// back.
Values part_of(const Values& full, const Placement&);
void place(const Values& part, const Placement&, Values& full);

}  // namespace trident::testing
