// Blocks of any size, carved out of large segments of a device's memory. Adjacent free blocks are
// merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/device.h"

namespace trident {

// Not thread-safe. The device must outlive the pool, and the pool its blocks. take() throws
// OutOfMemory.
//
// On a device whose memory counts from its first use (Device::release), the pool returns unused
// memory to the device before the used memory exceeds the peak sum of the blocks by more than a
// 25th (and 4 MiB). A step whose block sizes don't fit the free gaps then costs page faults, not
// memory.
class BlockPool {
 public:
  explicit BlockPool(Device& device) : device_(device) {}
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Takes the smallest free block that is large enough; of several, the block with the lowest
  // address. The rest of that block stays free. Aligned to 64 bytes, on a GPU to 256.
  std::byte* take(std::size_t bytes);
  void give_back(std::byte* block, std::size_t bytes);

  struct Figures {
    std::int64_t blocks = 0, peak_blocks = 0;  // bytes of the blocks: now, and peak
    std::int64_t held = 0, peak_held = 0;      // bytes of the device in use for them: now, and peak
    std::int64_t segments = 0;                 // calls to Device::allocate_segment
    std::int64_t released = 0;                 // bytes returned by Device::release, in total
  };
  const Figures& figures() const { return figures_; }

 private:
  // Memory is used and released in units of a huge page.
  static constexpr std::size_t piece = std::size_t{2} << 20;
  struct Segment {
    std::size_t bytes;
    std::vector<bool> held;  // for each unit, whether it is in use
  };
  using Segments = std::map<std::byte*, Segment>;

  void add_segment(std::size_t bytes);
  bool drop_free_segments();
  void insert(std::byte* block, std::size_t bytes);
  void erase(std::map<std::byte*, std::size_t>::iterator block);
  void hold(std::byte* block, std::size_t bytes);
  void release_unused();
  Segments::iterator segment_of(std::byte* block) { return --segments_.upper_bound(block); }

  Device& device_;
  Segments segments_;                                     // by address
  std::map<std::byte*, std::size_t> free_;                // address → size
  std::set<std::pair<std::size_t, std::byte*>> by_size_;  // the same blocks, by size
  Figures figures_;
};

}  // namespace trident
