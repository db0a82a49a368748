// The formulas of RotaryFrequencies (kernels/rotary.h), for code of the host and of a GPU.
#pragma once

#include <cmath>

#include "kernels/rotary.h"

#ifdef __CUDACC__
#define TRIDENT_HOST_DEVICE __host__ __device__
#else
#define TRIDENT_HOST_DEVICE
#endif

namespace trident {

// base^(-2i/D) of pair i, D = head_dim.
TRIDENT_HOST_DEVICE inline double plain_frequency(const RotaryFrequencies& f, double pair,
                                                  double head_dim) {
  return pow(static_cast<double>(f.base), -2.0 * pair / head_dim);
}

// f_i of the pair.
TRIDENT_HOST_DEVICE inline double scaled_frequency(const RotaryFrequencies& f, double pair,
                                                   double head_dim) {
  const double plain = plain_frequency(f, pair, head_dim);
  const double u = f.turns > 0 ? f.turns * plain : pair;
  const double ramp = f.slope * u + f.shift;
  const double scaled = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
  return plain * (1 - scaled) + plain / f.factor * scaled;
}

}  // namespace trident

#undef TRIDENT_HOST_DEVICE
