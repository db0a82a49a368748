#include "core/allocator.h"

#include <string>

#include "base/error.h"

namespace trident {
namespace {

std::string held(const Ledger::Figures& figures) {
  std::string text = "this rank holds";
  for (int c = 0; c < category_count; ++c) {
    text += std::string(c > 0 ? ", " : " ") + std::string(name_of(static_cast<Category>(c))) + " " +
            std::to_string(figures.current[static_cast<std::size_t>(c)]);
  }
  return text + ", in all " + std::to_string(figures.total) + " bytes";
}

}  // namespace

void* Allocator::take(std::size_t bytes, Category category) {
  void* address = nullptr;
  try {
    if (!device_.has_memory()) {
      address = device_.allocate(bytes);
    } else {
      const std::lock_guard lock(mutex_);
      address = pool(bytes).take(bytes);
    }
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(std::string(error.what()) + " (" + std::string(name_of(category)) + "); " +
                      held(ledger_.figures()));
  }
  ledger_.take(category, static_cast<std::int64_t>(bytes));
  return address;
}

void Allocator::give_back(void* address, std::size_t bytes, Category category) {
  ledger_.give_back(category, static_cast<std::int64_t>(bytes));
  if (!device_.has_memory()) return device_.deallocate(address, bytes);
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
