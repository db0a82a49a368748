// What a collective does with the memory of ranks that share an address space. Raw addresses: the
// other ranks' tensors are not this one's. Called inside stream work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/reduce.h"

namespace trident {

// places[p][i] := sources[0][i] op sources[1][i] op …, as `reduce`, for `count` elements and every
// place; a place may be one of the sources.
struct ReducePeers {
  std::span<const void* const> sources;
  std::span<void* const> places;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int divisor = 1;
};

}  // namespace trident
