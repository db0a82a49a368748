// From a site's arguments to the inner loops' form.
#pragma once

#include <cmath>

#include "kernels/cpu/simd/table.h"
#include "kernels/dropout.h"

namespace trident::cpu {

inline simd::Dropout dropout_of(const DropoutArgs& args) {
  const double p = args.probability;
  return {args.key, static_cast<std::uint32_t>(std::ceil(p * 0x1p32)),
          static_cast<float>(1 / (1 - p))};
}

}  // namespace trident::cpu
