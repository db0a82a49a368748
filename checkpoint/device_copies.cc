#include "checkpoint/device_copies.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "base/error.h"
#include "checkpoint/save_list.h"
#include "core/allocator.h"
#include "kernels/elementwise.h"

namespace trident {
namespace {

bool is_copied(const StateTensor& tensor, DType weights, std::uint64_t min_slice) {
  return is_saved(tensor, weights) && share_of(tensor, tensor.holder, min_slice).has_value();
}

// The bytes that the copy of a tensor takes.
std::int64_t room_of(const Tensor& tensor) {
  constexpr std::int64_t line = 256;
  return (tensor.bytes() + line - 1) / line * line;
}

}  // namespace

std::int64_t copied_bytes(const State& state, DType weights, std::uint64_t min_slice) {
  return largest_part(state, weights, min_slice, [](const StateTensor& tensor, const Share&) {
    return room_of(tensor.tensor);
  });
}

bool DeviceCopies::take(Context& context, const std::vector<StateTensor*>& copied) {
  Device& device = context.device();
  std::int64_t bytes = 0;
  for (const StateTensor* one : copied) bytes += room_of(one->tensor);
  const auto has_to_spare = [&](std::int64_t more) {
    const Device::Memory memory = device.memory();
    return memory.free >= more + memory.total / 16;
  };
  if (!has_to_spare(bytes)) return false;
  // It has an allocator of its own. If the copies lay in blocks that training has free between two
  // iterations, they would fragment the memory of the next iteration.
  std::shared_ptr<Storage> memory;
  try {
    memory = std::make_shared<Storage>(std::make_shared<Allocator>(device, context.ledger()),
                                       static_cast<std::size_t>(bytes), Category::staging);
  } catch (const OutOfMemory&) {
    return false;
  }
  if (!has_to_spare(0)) return false;  // other ranks on the GPU have taken memory meanwhile
  std::size_t offset = 0;
  for (const StateTensor* one : copied) {
    kept_.emplace_back(memory, offset, Shape{one->tensor.numel()}, one->tensor.dtype());
    offset += static_cast<std::size_t>(room_of(one->tensor));
  }
  return true;
}

bool DeviceCopies::make(Context& context, State& state, DType weights, std::uint64_t min_slice) {
  if (context.device().kind() != DeviceKind::cuda) return false;
  std::vector<StateTensor*> copied;
  for (StateTensor& tensor : state.tensors) {
    if (is_copied(tensor, weights, min_slice)) copied.push_back(&tensor);
  }
  const bool fit = std::ranges::equal(copied, kept_, [](const StateTensor* one, const Tensor& to) {
    return one->tensor.dtype() == to.dtype() && one->tensor.numel() == to.numel();
  });
  if (!fit) {
    kept_.clear();
    if (!take(context, copied)) return false;
  }
  for (std::size_t i = 0; i < copied.size(); ++i) {
    copy(context, copied[i]->tensor.flat(0, copied[i]->tensor.numel()), kept_[i]);
    copied[i]->tensor = kept_[i];
  }
  return true;
}

}  // namespace trident
