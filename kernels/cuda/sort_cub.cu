#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/sort.h"

namespace trident::cuda {

std::size_t sort_workspace(const SortRows& s) {
  std::size_t bytes = 0;
  check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, s.ids, s.ids_out, s.ascending, s.rows_out,
                                        static_cast<int>(s.n), 0, s.bits),
        "the workspace of a sort");
  return bytes;
}

void sort_rows(const Queue& queue, const SortRows& s, void* workspace, std::size_t bytes) {
  check(cub::DeviceRadixSort::SortPairs(workspace, bytes, s.ids, s.ids_out, s.ascending, s.rows_out,
                                        static_cast<int>(s.n), 0, s.bits, queue.stream),
        "a sort");
}

}  // namespace trident::cuda
