// Attention heads inside the rows of a tensor, an operand of several kernels.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace trident {

// Heads side by side in the rows of a tensor: the first one begins at this column of each row.
struct HeadColumns {
  Tensor rows;  // (T, at least begin + heads · their elements)
  std::int64_t begin = 0;
};

}  // namespace trident
