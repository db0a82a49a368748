// Copies of a state in the memory of the GPU that holds it. They are made within milliseconds.
// Training continues at once, and the saving thread reads the copies later.
//
// Each rank has its own. Not collective.
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"
#include "parallel/state.h"

namespace trident {

// The bytes that DeviceCopies needs: the maximum over the ranks that share this rank's work.
std::int64_t copied_bytes(const State&, DType weights, std::uint64_t min_slice);

class DeviceCopies {
 public:
  // Replaces the tensors of which this rank writes a part (as in SaveList) by copies of their
  // present values. The caller must wait for the stream before another stream reads them. This
  // object owns the copies, counts them as staging and reuses their memory in the next call.
  // Returns false, keeps no copies and leaves the state unchanged if the device is not a GPU or has
  // too little free memory: the copies and a sixteenth of its total memory.
  bool make(Context&, State&, DType weights, std::uint64_t min_slice);

 private:
  // Allocates `kept_`, the memory for these copies. Returns false if there is not enough memory.
  bool take(Context&, const std::vector<StateTensor*>& copied);

  std::vector<Tensor> kept_;  // copies, in the order of the copied tensors
};

}  // namespace trident
