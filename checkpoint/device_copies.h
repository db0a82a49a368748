// Copies of a state in the memory of the GPU that holds it: made within milliseconds, so that
// training goes on at once and whoever saves reads them whenever it comes to it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"
#include "parallel/state.h"

namespace trident {

// How many bytes DeviceCopies takes on this rank, or on the one of those that share its work which
// has most to copy.
std::int64_t copied_bytes(const State&, DType weights, std::uint64_t min_slice);

class DeviceCopies {
 public:
  // Puts copies in the place of the tensors of which this rank writes a part, as SaveList does it.
  // They hold the state as it is now; the caller waits for the stream before another one reads
  // them. They are this object's, which uses the memory again and counts it as staging. False, and
  // the state is as it was: the device is no GPU, or has no memory to spare, which is a sixteenth
  // of it more than the copies take; then none is kept.
  bool make(Context&, State&, DType weights, std::uint64_t min_slice);

 private:
  // Memory for copies of them, which are `kept_` then. False where there is not enough.
  bool take(Context&, const std::vector<StateTensor*>& copied);

  std::vector<Tensor> kept_;  // of the tensors that are copied, in their order
};

}  // namespace trident
