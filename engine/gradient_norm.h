// The global gradient norm, the same to the bit for every layout of the same gradients.
#pragma once

#include "core/context.h"
#include "core/exact_sum.h"
#include "parallel/topology.h"
#include "parallel/zero/buckets.h"

namespace trident {

// This rank's part of the sum of squares. Each of the ranks that share a bucket sums the squares of
// its part of it in blocks of bucket_block elements (each block in a fixed order in fp64);
// the blocks are added exactly, so it does not matter which rank holds which. Parameters that
// several ranks hold are counted once (Placement::is_primary). Gives the state of an exact sum
// (core/exact_sum.h), (limbs + 1) i64.
Tensor gradient_squares(Context&, const ParameterBuckets&, const Topology&);

}  // namespace trident
