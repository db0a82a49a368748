// Element-wise reduction of several host buffers into one, in the given order. The functions run in
// the calling thread and return when done. Any thread may call them.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "kernels/reduce_op.h"

namespace trident {

// destination[i] := sources[0][i] op sources[1][i] op …, for n elements. `average` sums and then
// divides by `divisor` (1 leaves a partial sum). 16-bit floats accumulate in fp32 and are rounded
// once. Integers wrap. A NaN wins minimum and maximum. `destination` may be one of the sources.
// Throws RequestError if `supports` is false.
void reduce(void* destination, std::span<const void* const> sources, std::int64_t n, DType dtype,
            ReduceOp op, int divisor);

// The same reduction in stages, with bitwise identical results. The running value has the
// accumulator's type: fp32 for 16-bit floats, else `dtype`.
DType accumulator_of(DType dtype);
// running[i] := running[i] op sources[0][i] op sources[1][i] op …. With `begins` the first source
// starts the value, and running is not read.
void reduce_on(void* running, bool begins, std::span<const void* const> sources, std::int64_t n,
               DType dtype, ReduceOp op);
// destination[i] := running[i], converted to `dtype`; `average` divides by `divisor` first.
void reduce_end(void* destination, const void* running, std::int64_t n, DType dtype, ReduceOp op,
                int divisor);

// False for a bitwise operation on floats; true otherwise.
bool supports(ReduceOp op, DType dtype);

}  // namespace trident
