// Operations of a collective on the memory of ranks that share an address space. They take raw
// addresses, because the other ranks' tensors do not belong to this rank's context. Called inside
// stream work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/reduce.h"

namespace trident {

// places[p][i] := sources[0][i] op sources[1][i] op …, as `reduce` does, for `count` elements and
// every destination p. A destination may be one of the sources.
struct ReducePeers {
  std::span<const void* const> sources;
  std::span<void* const> places;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int divisor = 1;
};

}  // namespace trident
