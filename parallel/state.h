// What a rank needs to go on with a run, each part under a name: tensors with where their elements
// lie, and numbers. Those who own it list it; saving, roll-back and dumping go along the list and
// know nothing of its owners.
//
// There are no generators in it: random numbers have keys, not order (core/rng.h).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/tensor.h"
#include "parallel/placement.h"

namespace trident {

class Parameter;

enum class StateKind : std::uint8_t {
  weight,     // what forward computes with; follows from the masters
  master,     // fp32, what updates change; the weights themselves in fp32 training
  optimizer,  // what an update rule keeps (engine/optimizer/optimizer.h)
  stashed,    // older weights that micro-batches in flight use (parallel/zero/weight_stash.h)
  gradient,   // of the last step: reduced, before clipping, times its loss scale
};

// Elements [begin, begin + numel) of the flat buffer of a rank's part.
struct StateTensor {
  StateKind kind{};
  std::string name;  // "weight", "master", "gradient", or the update rule's own: "exp_avg"
  const Parameter* parameter = nullptr;  // whose it is
  Placement placement;                   // of the state: a row or column of a matrix has its own
  std::int64_t begin = 0;
  Tensor tensor;
  Holder holder;  // which of the ranks that hold the same elements this is
};

struct StateNumber {
  std::string name;  // "optimizer.step"
  std::variant<std::int64_t*, double*> value;
  double least = 0, most = 0x1p53;  // a file that says otherwise is no state of a run
};

struct State {
  std::vector<StateTensor> tensors;
  std::vector<StateNumber> numbers;
};

}  // namespace trident
