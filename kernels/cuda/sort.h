// A stable sort of row numbers by their ids. It makes the embedding's gradient repeatable without
// atomics. sort_cub.cu implements it with CUB. Called inside stream work; throws Error if CUB
// fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/queue.h"

namespace trident::cuda {

// Arguments of a sort: device arrays of n elements each. ids are in [0, 2^bits). On entry
// `ascending` holds 0 … n - 1. Afterwards rows_out holds 0 … n - 1 in the order of ascending ids,
// and in ascending order among equal ids; ids_out holds the sorted ids.
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
