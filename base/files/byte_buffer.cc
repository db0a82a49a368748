#include "base/files/byte_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

namespace trident {

namespace {

constexpr std::size_t kLine = 64, kPage = 64 << 10, kHuge = std::size_t{2} << 20;
constexpr std::size_t kLarge = 256 << 10;  // blocks of this size or more are mapped from the system

std::size_t rounded(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

// The alignment of a large block.
std::size_t alignment_of(std::size_t bytes) {
  return bytes >= kHuge ? kHuge : kPage;
}

}  // namespace

void* allocate_bytes(std::size_t bytes) {
  if (bytes < kLarge) {
    void* memory = std::aligned_alloc(kLine, rounded(bytes, kLine));
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  const std::size_t alignment = alignment_of(bytes), size = rounded(bytes, alignment);
  void* mapped =
      ::mmap(nullptr, size + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(mapped);
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t before = rounded(at, alignment) - at;
  if (before > 0) ::munmap(begin, before);
  if (before < alignment) ::munmap(begin + before + size, alignment - before);
  if (alignment == kHuge) ::madvise(begin + before, size, MADV_HUGEPAGE);  // may be unsupported
  return begin + before;
}

void free_bytes(void* memory, std::size_t bytes) noexcept {
  if (bytes < kLarge) {
    std::free(memory);
  } else {
    ::munmap(memory, rounded(bytes, alignment_of(bytes)));
  }
}

}  // namespace trident
