// The time that a rank's kernels have taken on a CPU, where stream work computes itself. On a GPU,
// stream work only fills a queue, and nothing is counted.
#pragma once

#include <atomic>
#include <cstdint>

namespace trident {

struct KernelClock {
  // Wall-clock nanoseconds of matrix products (including attention) and of all other kernels.
  std::atomic<std::int64_t> products_ns = 0, others_ns = 0;
};

}  // namespace trident
