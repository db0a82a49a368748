#include "core/block_pool.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace trident {
namespace {

// Under the address sanitizer, every byte of CPU memory outside the blocks is poisoned, and there
// is a gap between blocks.
#if defined(__SANITIZE_ADDRESS__)
std::size_t distance(const Device& device) {
  return device.kind() == DeviceKind::cpu ? 64 : 0;
}
void forbid(const Device& device, std::byte* begin, std::size_t bytes) {
  if (device.kind() == DeviceKind::cpu) ASAN_POISON_MEMORY_REGION(begin, bytes);
}
void allow(const Device& device, std::byte* begin, std::size_t bytes) {
  if (device.kind() == DeviceKind::cpu) ASAN_UNPOISON_MEMORY_REGION(begin, bytes);
}
#else
std::size_t distance(const Device&) {
  return 0;
}
void forbid(const Device&, std::byte*, std::size_t) {}
void allow(const Device&, std::byte*, std::size_t) {}
#endif

std::size_t whole_lines(const Device& device, std::size_t bytes) {
  // A GPU's libraries also choose their algorithm by alignment, so the alignment must not vary.
  const std::size_t line = device.kernels() == DeviceKind::cuda ? 256 : 64;
  return (std::max<std::size_t>(bytes, 1) + line - 1) / line * line + distance(device);
}

}  // namespace

BlockPool::~BlockPool() {
  for (const auto& [begin, segment] : segments_) {
    allow(device_, begin, std::min(segment.bytes, segment.held.size() * piece));
    device_.deallocate(begin, segment.bytes);
  }
}

void BlockPool::insert(std::byte* block, std::size_t bytes) {
  free_.emplace(block, bytes);
  by_size_.emplace(bytes, block);
}

void BlockPool::erase(std::map<std::byte*, std::size_t>::iterator block) {
  by_size_.erase({block->second, block->first});
  free_.erase(block);
}

void BlockPool::add_segment(std::size_t bytes) {
  Device::Segment segment{};
  try {
    segment = device_.allocate_segment(bytes);
  } catch (const OutOfMemory&) {
    if (!drop_free_segments()) throw;
    segment = device_.allocate_segment(bytes);
  }
  auto* const begin = static_cast<std::byte*>(segment.address);
  segments_.emplace(begin, Segment{segment.bytes, {}});
  insert(begin, segment.bytes);
  ++figures_.segments;
}

// Returns segments without a used block to the device. False if there is no such segment.
bool BlockPool::drop_free_segments() {
  bool dropped = false;
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto block = free_.find(segment->first);
    if (block == free_.end() || block->second != segment->second.bytes) {
      ++segment;
      continue;
    }
    erase(block);
    for (const bool held : segment->second.held) figures_.held -= held ? std::int64_t{piece} : 0;
    allow(device_, segment->first,
          std::min(segment->second.bytes, segment->second.held.size() * piece));
    device_.deallocate(segment->first, segment->second.bytes);
    segment = segments_.erase(segment);
    dropped = true;
  }
  return dropped;
}

// Counts the units that a block newly uses.
void BlockPool::hold(std::byte* block, std::size_t bytes) {
  const auto segment = segment_of(block);
  const auto begin = static_cast<std::size_t>(block - segment->first);
  auto& held = segment->second.held;
  const std::size_t end = (begin + bytes + piece - 1) / piece;
  if (held.size() < end) held.resize(end);
  for (std::size_t i = begin / piece; i < end; ++i) {
    if (!held[i]) figures_.held += piece;
    held[i] = true;
  }
}

void BlockPool::release_unused() {
  const std::int64_t allowed =
      figures_.peak_blocks + figures_.peak_blocks / 25 + std::int64_t{2 * piece};
  for (auto it = by_size_.rbegin(); it != by_size_.rend() && figures_.held > allowed; ++it) {
    const auto [bytes, block] = *it;
    const auto segment = segment_of(block);
    auto& held = segment->second.held;
    const auto begin = static_cast<std::size_t>(block - segment->first);
    const std::size_t end = std::min(held.size(), (begin + bytes) / piece);
    for (std::size_t i = (begin + piece - 1) / piece; i < end && figures_.held > allowed; ++i) {
      if (!held[i]) continue;
      if (!device_.release(segment->first + i * piece, piece)) return;
      held[i] = false;
      figures_.held -= piece;
      figures_.released += piece;
    }
  }
}

std::byte* BlockPool::take(std::size_t bytes) {
  const std::size_t size = whole_lines(device_, bytes);
  auto found = by_size_.lower_bound({size, nullptr});
  if (found == by_size_.end()) {
    add_segment(size);
    found = by_size_.lower_bound({size, nullptr});
  }
  const auto [whole, block] = *found;
  erase(free_.find(block));
  if (whole > size) insert(block + size, whole - size);
  figures_.blocks += static_cast<std::int64_t>(size);
  figures_.peak_blocks = std::max(figures_.peak_blocks, figures_.blocks);
  hold(block, size);
  release_unused();
  figures_.peak_held = std::max(figures_.peak_held, figures_.held);
  forbid(device_, block, size);
  allow(device_, block, bytes);
  return block;
}

void BlockPool::give_back(std::byte* block, std::size_t bytes) {
  std::size_t size = whole_lines(device_, bytes);
  forbid(device_, block, size);
  figures_.blocks -= static_cast<std::int64_t>(size);
  const auto segment = segment_of(block);
  auto next = free_.lower_bound(block);
  if (next != free_.end() && next->first == block + size &&
      block + size < segment->first + segment->second.bytes) {
    size += next->second;
    const auto merged = next++;
    erase(merged);
  }
  if (next != free_.begin() && block != segment->first) {
    const auto before = std::prev(next);
    if (before->first + before->second == block) {
      block = before->first;
      size += before->second;
      erase(before);
    }
  }
  insert(block, size);
}

}  // namespace trident
