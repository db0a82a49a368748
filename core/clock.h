// Moments of a rank.
#pragma once

#include <cstdint>

namespace trident {

// Wall clock and the CPU time of the thread that computes (0 at any fixed moment), in nanoseconds.
// A GPU has one clock for both.
struct ClockReading {
  std::int64_t wall_ns = 0;
  std::int64_t cpu_ns = 0;
};
ClockReading read_clock();  // of the calling thread

}  // namespace trident
