// Blocks of any size cut from large segments of a device's memory, and grown together again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/device.h"

namespace trident {

// Not for several threads at once. The device must outlive it, blocks must not.
//
// Where memory counts from its first use (Device::release), what lies unused between blocks is
// given back before more is used than a 25th above the highest sum of the blocks: a step whose
// sizes don't fit each other's gaps costs page faults then, not memory.
class BlockPool {
 public:
  explicit BlockPool(Device& device) : device_(device) {}
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Aligned to 64 bytes, on a GPU to 256: the smallest free block that is large enough, of several
  // the one with the lowest address; what it is larger stays free.
  std::byte* take(std::size_t bytes);
  void give_back(std::byte* block, std::size_t bytes);

  struct Figures {
    std::int64_t blocks = 0, peak_blocks = 0;  // bytes of the blocks: now, and at most
    std::int64_t held = 0, peak_held = 0;      // bytes used of the device for them
    std::int64_t segments = 0;                 // calls to Device::allocate_segment
    std::int64_t released = 0;                 // bytes given back by Device::release, in all
  };
  const Figures& figures() const { return figures_; }

 private:
  // Memory is used and given back in pieces of a huge page.
  static constexpr std::size_t piece = std::size_t{2} << 20;
  struct Segment {
    std::size_t bytes;
    std::vector<bool> held;  // by piece
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
  Segments segments_;                                     // by begin
  std::map<std::byte*, std::size_t> free_;                // begin → size
  std::set<std::pair<std::size_t, std::byte*>> by_size_;  // the same
  Figures figures_;
};

}  // namespace trident
