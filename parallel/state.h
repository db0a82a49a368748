// The state that a rank needs to resume a run: tensors, with the placement of their elements, and
// numbers, each under a name. The owners of the state list it. Saving, roll-back and dumping go
// along the list and know nothing of the owners.
//
// It contains no random generators: random numbers have keys, not an order (core/rng.h).
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
  weight,     // used by forward; derived from the masters
  master,     // fp32, changed by updates; in fp32 training the weights themselves
  optimizer,  // kept by an update rule (engine/optimizer/optimizer.h)
  stashed,    // older weights that micro-batches in flight use (parallel/zero/weight_stash.h)
  gradient,   // of the last step: reduced, before clipping, times its loss scale
};

// Elements [begin, begin + numel) of the flat buffer of a rank's part.
struct StateTensor {
  StateKind kind{};
  std::string name;  // "weight", "master", "gradient", or the update rule's own: "exp_avg"
  const Parameter* parameter = nullptr;  // the owner of the state
  Placement placement;  // of the state; a matrix's state by rows or columns has its own
  std::int64_t begin = 0;
  Tensor tensor;
  Holder holder;  // this rank among the ranks that hold the same elements
};

struct StateNumber {
  std::string name;  // "optimizer.step"
  std::variant<std::int64_t*, double*> value;
  double least = 0, most = 0x1p53;  // a restored value outside is an error
};

struct State {
  std::vector<StateTensor> tensors;
  std::vector<StateNumber> numbers;
};

}  // namespace trident
