#include "core/byte_buffer.h"

#include <sys/mman.h>

#include <cstdlib>

namespace trident {

void* allocate_bytes(std::size_t bytes) {
  constexpr std::size_t page = 64, huge = std::size_t{2} << 20;
  const std::size_t alignment = bytes >= huge ? huge : page;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  if (alignment == huge) ::madvise(memory, rounded, MADV_HUGEPAGE);  // may not be known
  return memory;
}

void free_bytes(void* memory) noexcept {
  std::free(memory);
}

}  // namespace trident
