// This machine's own speed at matrix products: what MFU is measured against.
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"

namespace trident {

struct ProductShape {
  std::int64_t m = 1024, k = 768, n = 3072;
  bool operator==(const ProductShape&) const = default;
};

// FLOP/s of each of the runs of c[m, n] = a[m, k] · b[n, k]ᵀ on the context's threads that take
// about `seconds` together.
std::vector<double> product_rates(Context&, DType dtype, ProductShape shape, double seconds);
// The fastest of them, since other load only ever slows one.
double product_rate(Context&, DType dtype, ProductShape shape, double seconds = 0.2);

// One that shows the rate of the context's device: of a GPU a cube that takes milliseconds.
ProductShape usual_product(Context&, DType dtype);

// What a start has measured of its machine.
struct MeasuredRate {
  double best = 0, median = 0;  // FLOP/s
};
// Of the usual product. `known`: the best rate that is known of this machine, 0 for none. Without
// one it takes about a second, else a fifth of it, and up to three while what comes is by more than
// a fiftieth faster than all before.
MeasuredRate measure_rate(Context&, DType dtype, double known);

}  // namespace trident
