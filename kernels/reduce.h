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

// The same in stages, to the same bits: the value so far is kept in the accumulator's type, fp32
// for 16-bit floats, else `dtype`.
DType accumulator_of(DType dtype);
// running[i] := the reduction of running[i], unless it `begins` here, and of the sources in order.
void reduce_on(void* running, bool begins, std::span<const void* const> sources, std::int64_t n,
               DType dtype, ReduceOp op);
// destination[i] := running[i], divided for `average`, as `dtype`.
void reduce_end(void* destination, const void* running, std::int64_t n, DType dtype, ReduceOp op,
                int divisor);

// Bitwise operations are for integers only.
bool supports(ReduceOp op, DType dtype);

}  // namespace trident
