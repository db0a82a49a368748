// Measures this machine's speed at matrix products, against which MFU is computed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"

namespace trident {

struct ProductShape {
  std::int64_t m = 1024, k = 768, n = 3072;
  bool operator==(const ProductShape&) const = default;
};

// Runs c[m, n] = a[m, k] · b[n, k]ᵀ on the context's threads, for about `seconds` in all. Returns
// the FLOP/s of each run.
std::vector<double> product_rates(Context&, DType dtype, ProductShape shape, double seconds);
// The rate of the fastest run, since other load only slows a run down.
double product_rate(Context&, DType dtype, ProductShape shape, double seconds = 0.2);

// The product that shows the rate of the context's device. On a GPU it is a cube that takes
// milliseconds.
ProductShape usual_product(Context&, DType dtype);

// The rates that a run's start has measured on its machine.
struct MeasuredRate {
  double best = 0, median = 0;  // FLOP/s
};
// Measures the usual product. `known`: the best known rate of this machine, 0 for none. Without a
// known rate this takes about a second, otherwise a fifth of a second. It takes up to three seconds
// while results exceed all earlier ones by more than a fiftieth.
MeasuredRate measure_rate(Context&, DType dtype, double known);

}  // namespace trident
