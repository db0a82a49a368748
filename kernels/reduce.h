// Element-wise reduction of several buffers into one, in the order given.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "kernels/reduce_op.h"

namespace trident {

// destination[i] := sources[0][i] op sources[1][i] op …, for n elements; `average` adds and then
// divides by `divisor` (1: leaves a partial sum). 16-bit floats are accumulated in fp32 and rounded
// once. Integers wrap. A NaN wins minimum and maximum. `destination` may be one of the sources.
// Throws RequestError where `supports` is false.
void reduce(void* destination, std::span<const void* const> sources, std::int64_t n, DType dtype,
            ReduceOp op, int divisor);

// Bitwise operations are for integers only.
bool supports(ReduceOp op, DType dtype);

}  // namespace trident
