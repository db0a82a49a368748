// The global gradient norm. It is bitwise identical for every layout of the same gradients.
#pragma once

#include "core/context.h"
#include "core/exact_sum.h"
#include "parallel/topology.h"
#include "parallel/zero/buckets.h"

namespace trident {

// This rank's part of the sum of squares. Each rank that shares a bucket sums the squares of its
// own part of it in blocks of bucket_block elements (each block in a fixed order in fp64). The
// blocks are added exactly, so the result doesn't depend on which rank holds which block.
// Parameters that several ranks hold are counted once (Placement::is_primary). Returns the state of
// an exact sum (core/exact_sum.h), (limbs + 1) i64. Local to the rank; StepCheck adds up the parts.
Tensor gradient_squares(Context&, const ParameterBuckets&, const Topology&);

}  // namespace trident
