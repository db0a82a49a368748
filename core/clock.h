// Clock readings of a rank.
#pragma once

#include <cstdint>

namespace trident {

// The wall clock, and the CPU time of the thread that computes, in nanoseconds from an arbitrary
// fixed moment. A GPU has one clock for both.
struct ClockReading {
  std::int64_t wall_ns = 0;
  std::int64_t cpu_ns = 0;
};
ClockReading read_clock();  // of the calling thread

}  // namespace trident
