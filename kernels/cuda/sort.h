// A stable sort of row numbers by their ids: what makes the embedding's gradient repeatable without
// atomics. sort_cub.cu does it with CUB.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/queue.h"

namespace trident::cuda {

// Device memory of n elements each; ids from 0 to 2^bits - 1. rows_out holds 0 … n - 1 in the order
// of ascending ids, equal ids in ascending row; `ascending` holds 0 … n - 1 on entry.
struct SortRows {
  const std::int32_t* ids = nullptr;
  const std::int32_t* ascending = nullptr;
  std::int32_t* ids_out = nullptr;
  std::int32_t* rows_out = nullptr;
  std::int64_t n = 0;
  int bits = 31;
};
std::size_t sort_workspace(const SortRows&);  // bytes
void sort_rows(const Queue&, const SortRows&, void* workspace, std::size_t bytes);

}  // namespace trident::cuda
