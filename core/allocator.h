// A rank's caching allocator. It keeps freed blocks and hands them out again, so that a steady
// training step takes nothing from the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "core/block_pool.h"
#include "core/device.h"
#include "core/ledger.h"

namespace trident {

// Any thread may call it. The device and the ledger must outlive it (Context ensures this). take()
// throws OutOfMemory, which names the bytes of each category.
class Allocator {
 public:
  Allocator(Device& device, Ledger& ledger)
      : device_(device), small_(device), large_(device), ledger_(ledger) {}
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  void* take(std::size_t bytes, Category category);
  void give_back(void* address, std::size_t bytes, Category category);

  struct Figures {
    std::int64_t block_bytes = 0;         // peak of the blocks in use
    std::int64_t reserved_bytes = 0;      // peak held from the device for these blocks
    std::int64_t released_bytes = 0;      // returned to the device meanwhile, in total
    std::int64_t device_allocations = 0;  // calls to Device::allocate_segment so far
  };
  Figures figures() const;

 private:
  // A small long-lived block would split the space for large blocks in two.
  BlockPool& pool(std::size_t bytes) { return bytes < (std::size_t{1} << 16) ? small_ : large_; }

  Device& device_;  // serves each block itself if it has no memory
  mutable std::mutex mutex_;
  BlockPool small_, large_;
  Ledger& ledger_;
};

}  // namespace trident
