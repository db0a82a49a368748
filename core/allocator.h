// A rank's caching allocator: blocks given back are kept by size and handed out again, so that a
// steady training step takes nothing from the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "core/device.h"
#include "core/ledger.h"

namespace trident {

// Any thread may call it. Device and ledger must outlive it (Context sees to that).
class Allocator {
 public:
  Allocator(Device& device, Ledger& ledger) : device_(device), ledger_(ledger) {}
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  void* take(std::size_t bytes, Category category);
  void give_back(void* address, std::size_t bytes, Category category);

  struct Figures {
    std::int64_t reserved_bytes = 0;      // held from the device now
    std::int64_t device_allocations = 0;  // calls to Device::allocate so far
  };
  Figures figures() const;

 private:
  static std::size_t block_size(std::size_t bytes);

  Device& device_;
  Ledger& ledger_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;  // block size → free blocks
  Figures figures_;
};

}  // namespace trident
