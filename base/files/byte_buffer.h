// A vector for bytes that are written before they are read. std::vector's own allocator would fill
// the memory with zeros first.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace trident {

// Allocates `bytes` bytes. A large block is mapped from the system, in huge pages if the system
// gives them, and free_bytes() unmaps it at once: a general allocator would keep it for the thread
// that used it. Throws std::bad_alloc.
void* allocate_bytes(std::size_t bytes);
void free_bytes(void* memory, std::size_t bytes) noexcept;

template <class T>
struct UnfilledAllocator {
  using value_type = T;
  UnfilledAllocator() = default;
  template <class Other>
  UnfilledAllocator(const UnfilledAllocator<Other>&) noexcept {}  // NOLINT: as the standard asks

  T* allocate(std::size_t count) { return static_cast<T*>(allocate_bytes(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) noexcept { free_bytes(memory, count * sizeof(T)); }
  // Construction without a value leaves the memory unwritten.
  template <class Other>
  void construct(Other* at) noexcept {
    ::new (static_cast<void*>(at)) Other;
  }
  template <class Other, class... Values>
  void construct(Other* at, Values&&... values) {
    ::new (static_cast<void*>(at)) Other(std::forward<Values>(values)...);
  }
  bool operator==(const UnfilledAllocator&) const = default;
};

using ByteBuffer = std::vector<std::byte, UnfilledAllocator<std::byte>>;

}  // namespace trident
