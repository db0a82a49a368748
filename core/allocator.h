// A rank's caching allocator: what is given back is handed out again, so that a steady training
// step takes nothing from the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "core/block_pool.h"
#include "core/device.h"
#include "core/ledger.h"

namespace trident {

// Any thread may call it. Device and ledger must outlive it (Context sees to that).
class Allocator {
 public:
  Allocator(Device& device, Ledger& ledger)
      : device_(device), small_(device), large_(device), ledger_(ledger) {}
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  void* take(std::size_t bytes, Category category);
  void give_back(void* address, std::size_t bytes, Category category);

  struct Figures {
    std::int64_t block_bytes = 0;         // of the blocks handed out, at most
    std::int64_t reserved_bytes = 0;      // held from the device for them, at most
    std::int64_t released_bytes = 0;      // given back meanwhile, in all
    std::int64_t device_allocations = 0;  // calls to Device::allocate_segment so far
  };
  Figures figures() const;

 private:
  // A small block that stays would cut the room for large ones in two.
  BlockPool& pool(std::size_t bytes) { return bytes < (std::size_t{1} << 16) ? small_ : large_; }

  Device& device_;  // asked for each block where there is no memory to be cut into them
  mutable std::mutex mutex_;
  BlockPool small_, large_;
  Ledger& ledger_;
};

}  // namespace trident
