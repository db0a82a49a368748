// The global gradient norm, the same to the bit for every layout of the same gradients.
#pragma once

#include "core/context.h"
#include "parallel/data/buckets.h"
#include "parallel/process_group.h"

namespace trident {

// Each data-parallel rank sums the squares of its part of every bucket in blocks of bucket_block
// elements (each block in a fixed order in fp64); the blocks are added exactly, so it does not
// matter which rank holds which. Parameters that several ranks hold are counted once. NaN where a
// gradient is not finite. Collective over `world`; waits for the stream.
double global_gradient_norm(Context&, const ParameterBuckets&, const ProcessGroup& world,
                            const ProcessGroup& data, int tensor_rank);

}  // namespace trident
