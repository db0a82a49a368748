// One launch for many arrays. The small parameters of a model take less time than a launch each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace trident::cuda {

// Parts of a launch, each with its own functor and its own blocks.
template <class F>
struct Parts {
  // A kernel's parameters may have 4 KiB.
  static constexpr int most = (4096 - 64) / static_cast<int>(sizeof(F) + 2 * sizeof(std::int64_t));
  F f[most];
  std::int64_t n[most];            // elements
  std::int64_t first_block[most];  // ascending
  int count = 0;

  struct Share {
    int part;
    std::int64_t block;  // counted in the part
  };
  __device__ Share of(std::int64_t block) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (block < first_block[middle]) {
        high = middle;
      } else {
        low = middle;
      }
    }
    return {low, block - first_block[low]};
  }
};

// Starts `kernel` with as many parts at a time as it takes.
template <class F>
class PartsLauncher {
 public:
  static_assert(sizeof(Parts<F>) <= 4096);
  PartsLauncher(const Queue& queue, void (*kernel)(Parts<F>)) : queue_(queue), kernel_(kernel) {}
  void add(std::int64_t n, std::int64_t blocks, const F& f) {
    if (n == 0) return;
    if (parts_.count == Parts<F>::most || blocks_ + blocks > 0x7fffffff) run();
    parts_.f[parts_.count] = f;
    parts_.n[parts_.count] = n;
    parts_.first_block[parts_.count] = blocks_;
    ++parts_.count;
    blocks_ += blocks;
  }
  // Starts the parts that have been added.
  void run() {
    start(queue_, blocks_of(blocks_), 256, kernel_, parts_);
    parts_.count = 0;
    blocks_ = 0;
  }

 private:
  const Queue& queue_;
  void (*kernel_)(Parts<F>);
  Parts<F> parts_{};
  std::int64_t blocks_ = 0;
};

}  // namespace trident::cuda
