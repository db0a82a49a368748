// How long a rank's kernels have taken, where the stream's work computes itself: on a CPU. On a GPU
// it fills a queue, and nothing is counted.
#pragma once

#include <atomic>
#include <cstdint>

namespace trident {

struct KernelClock {
  // Nanoseconds by the wall clock, of products (attention among them) and of all other kernels.
  std::atomic<std::int64_t> products_ns = 0, others_ns = 0;
};

}  // namespace trident
