#include "core/allocator.h"

#include <bit>

namespace trident {

// Powers of two cut in eight: at most an eighth is wasted, and shapes that differ little share.
std::size_t Allocator::block_size(std::size_t bytes) {
  if (bytes <= 512) return (bytes + 63) / 64 * 64 + (bytes == 0 ? 64 : 0);
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

Allocator::~Allocator() {
  for (const auto& [size, blocks] : free_) {
    for (void* block : blocks) device_.deallocate(block, size);
  }
}

void* Allocator::take(std::size_t bytes, Category category) {
  const std::size_t size = block_size(bytes);
  void* address = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = free_.find(size); it != free_.end() && !it->second.empty()) {
      address = it->second.back();
      it->second.pop_back();
    } else {
      address = device_.allocate(size);
      ++figures_.device_allocations;
      figures_.reserved_bytes += static_cast<std::int64_t>(size);
    }
  }
  ledger_.take(category, static_cast<std::int64_t>(bytes));
  return address;
}

void Allocator::give_back(void* address, std::size_t bytes, Category category) {
  ledger_.give_back(category, static_cast<std::int64_t>(bytes));
  const std::lock_guard lock(mutex_);
  free_[block_size(bytes)].push_back(address);
}

Allocator::Figures Allocator::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

}  // namespace trident
