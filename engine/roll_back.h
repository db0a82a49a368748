// A copy of what an update changes, to roll the update back to the bit.
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
  // Takes as much memory as the list's tensors hold.
  RollBack(Context&, State changed);
  void keep(Context&);     // before the update
  void restore(Context&);  // what was kept

 private:
  State live_;
  std::vector<Tensor> tensors_;
  std::vector<std::variant<std::int64_t, double>> numbers_;
};

}  // namespace trident
