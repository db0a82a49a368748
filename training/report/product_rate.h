// This machine's own speed at matrix products: what MFU is measured against.
#pragma once

#include <cstdint>

#include "core/context.h"

namespace trident {

struct ProductShape {
  std::int64_t m = 1024, k = 768, n = 3072;
  bool operator==(const ProductShape&) const = default;
};

// FLOP/s of c[m, n] = a[m, k] · b[n, k]ᵀ on the context's threads: the fastest of runs that take
// about `seconds` together, since other load only ever slows one.
double product_rate(Context&, DType dtype, ProductShape shape, double seconds = 0.2);

// One that shows the rate of the context's device: of a GPU a cube that takes milliseconds.
ProductShape usual_product(Context&, DType dtype);

}  // namespace trident
