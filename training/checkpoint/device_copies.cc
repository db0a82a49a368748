#include "training/checkpoint/device_copies.h"

#include <cstddef>

#include "core/error.h"
#include "kernels/elementwise.h"
#include "training/checkpoint/save_list.h"

namespace trident {
namespace {

bool is_copied(const StateTensor& tensor, DType weights, std::uint64_t min_slice) {
  return is_saved(tensor, weights) && share_of(tensor, tensor.holder, min_slice).has_value();
}

}  // namespace

std::int64_t copied_bytes(const State& state, DType weights, std::uint64_t min_slice) {
  return largest_part(state, weights, min_slice, [](const StateTensor& tensor, const Share&) {
    return tensor.tensor.bytes();
  });
}

bool DeviceCopies::make(Context& context, State& state, DType weights, std::uint64_t min_slice) {
  if (context.device().kind() != DeviceKind::cuda) return false;
  std::vector<StateTensor*> copied;
  for (StateTensor& tensor : state.tensors) {
    if (is_copied(tensor, weights, min_slice)) copied.push_back(&tensor);
  }
  kept_.resize(copied.size());
  std::int64_t missing = 0;
  for (std::size_t i = 0; i < copied.size(); ++i) {
    const Tensor &from = copied[i]->tensor, &to = kept_[i];
    if (to && to.dtype() == from.dtype() && to.numel() == from.numel()) continue;
    kept_[i] = Tensor();
    missing += from.bytes();
  }
  if (missing > 0) {
    const Device::Memory memory = context.device().memory();
    if (memory.free < missing + memory.total / 16) return false;
  }
  try {
    for (std::size_t i = 0; i < copied.size(); ++i) {
      const Tensor& from = copied[i]->tensor;
      if (!kept_[i]) kept_[i] = context.empty({from.numel()}, from.dtype(), Category::staging);
    }
  } catch (const OutOfMemory&) {  // other ranks there were faster
    kept_.clear();
    return false;
  }
  for (std::size_t i = 0; i < copied.size(); ++i) {
    copy(context, copied[i]->tensor.flat(0, copied[i]->tensor.numel()), kept_[i]);
    copied[i]->tensor = kept_[i];
  }
  return true;
}

}  // namespace trident
