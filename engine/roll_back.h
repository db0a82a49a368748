// A copy of the state that an update changes. It can undo the update; the state is then bitwise
// identical to before.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "core/context.h"
#include "parallel/state.h"

namespace trident {

class RollBack {
 public:
  // Allocates as much memory as the tensors of `changed` have.
  RollBack(Context&, State changed);
  void keep(Context&);     // call it before the update
  void restore(Context&);  // restores the kept copy

 private:
  State live_;
  std::vector<Tensor> tensors_;
  std::vector<std::variant<std::int64_t, double>> numbers_;
};

}  // namespace trident
