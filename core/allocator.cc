#include "core/allocator.h"

namespace trident {

void* Allocator::take(std::size_t bytes, Category category) {
  void* address = nullptr;
  {
    const std::lock_guard lock(mutex_);
    address = pool(bytes).take(bytes);
  }
  ledger_.take(category, static_cast<std::int64_t>(bytes));
  return address;
}

void Allocator::give_back(void* address, std::size_t bytes, Category category) {
  ledger_.give_back(category, static_cast<std::int64_t>(bytes));
  const std::lock_guard lock(mutex_);
  pool(bytes).give_back(static_cast<std::byte*>(address), bytes);
}

Allocator::Figures Allocator::figures() const {
  const std::lock_guard lock(mutex_);
  const BlockPool::Figures &a = small_.figures(), &b = large_.figures();
  return {.block_bytes = a.peak_blocks + b.peak_blocks,
          .reserved_bytes = a.peak_held + b.peak_held,
          .released_bytes = a.released + b.released,
          .device_allocations = a.segments + b.segments};
}

}  // namespace trident
