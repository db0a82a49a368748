#include "core/block_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "core/allocator.h"

namespace trident {
namespace {

// A device whose segments are 1 MiB, or as large as requested. Its addresses have no memory behind
// them.
class FakeDevice : public Device {
 public:
  static constexpr std::size_t segment = std::size_t{1} << 20;
  DeviceKind kind() const override { return DeviceKind::planning; }
  std::string_view name() const override { return "fake"; }
  void* allocate(std::size_t bytes) override {
    const std::uintptr_t address = next_;
    next_ += bytes;  // segments touch: blocks of two segments must not merge
    held[address] = bytes;
    return reinterpret_cast<void*>(address);
  }
  void deallocate(void* address, std::size_t bytes) override {
    EXPECT_EQ(held.at(reinterpret_cast<std::uintptr_t>(address)), bytes);
    held.erase(reinterpret_cast<std::uintptr_t>(address));
  }
  Segment allocate_segment(std::size_t at_least) override {
    const std::size_t bytes = std::max(at_least, segment);
    return {allocate(bytes), bytes};
  }
  std::unique_ptr<Stream> make_stream() override { return nullptr; }

  std::map<std::uintptr_t, std::size_t> held;

 private:
  std::uintptr_t next_ = std::uintptr_t{1} << 40;
};

TEST(BlockPool, BlocksNeverOverlapAndLieInOneSegment) {
  std::mt19937 random(7);
  FakeDevice device;
  {
    BlockPool pool(device);
    std::map<std::uintptr_t, std::size_t> blocks;
    std::int64_t most = 0, held = 0;
    for (int i = 0; i < 20'000; ++i) {
      if (blocks.empty() || random() % 5 < 3 - (held > 8'000'000 ? 2 : 0)) {
        const std::size_t bytes =
            random() % 50 == 0 ? random() % 2'000'000 : random() % (random() % 2 ? 200 : 60'000);
        const auto begin = reinterpret_cast<std::uintptr_t>(pool.take(bytes));
        const std::uintptr_t end = begin + bytes;
        ASSERT_EQ(begin % 64, 0u);
        const auto after = blocks.lower_bound(begin);
        if (after != blocks.end()) {
          ASSERT_LE(end, after->first);
        }
        if (after != blocks.begin()) {
          const auto before = std::prev(after);
          ASSERT_LE(before->first + before->second, begin);
        }
        const auto segment = std::prev(device.held.upper_bound(begin));
        ASSERT_LE(end, segment->first + segment->second);
        blocks[begin] = bytes;
        held += static_cast<std::int64_t>(bytes);
      } else {
        auto it = blocks.begin();
        std::advance(it, random() % blocks.size());
        pool.give_back(reinterpret_cast<std::byte*>(it->first), it->second);
        held -= static_cast<std::int64_t>(it->second);
        blocks.erase(it);
      }
      most = std::max(most, held);
      ASSERT_EQ(pool.figures().segments, std::ssize(device.held));
    }
    EXPECT_GE(pool.figures().peak_blocks, most);
    for (const auto& [begin, bytes] : blocks) {
      pool.give_back(reinterpret_cast<std::byte*>(begin), bytes);
    }
    EXPECT_EQ(pool.figures().blocks, 0);
    // All blocks have merged again: the pool hands out each segment as one block, without a new
    // one.
    const std::int64_t segments = pool.figures().segments;
    const auto before = device.held;
    std::vector<std::byte*> again;
    for (const auto& segment : before) again.push_back(pool.take(segment.second));
    EXPECT_EQ(pool.figures().segments, segments);
    pool.take(1);
    EXPECT_EQ(pool.figures().segments, segments + 1);
  }
  EXPECT_TRUE(device.held.empty());
}

TEST(BlockPool, TakesTheSmallestThatIsLargeEnough) {
  FakeDevice device;
  BlockPool pool(device);
  std::byte* const a = pool.take(6400);
  std::byte* const between = pool.take(64);
  std::byte* const b = pool.take(640);
  std::byte* const end = pool.take(64);
  EXPECT_EQ(pool.figures().blocks, 6400 + 64 + 640 + 64);
  pool.give_back(a, 6400);
  pool.give_back(b, 640);
  EXPECT_EQ(pool.take(640), b);  // not in front of the larger one
  EXPECT_EQ(pool.take(600), a);
  EXPECT_EQ(pool.take(600), a + 640);
  pool.give_back(a + 640, 600);
  pool.give_back(between, 64);
  EXPECT_EQ(pool.take(6400 - 640 + 64), a + 640);  // the rest and its neighbour, merged
  EXPECT_EQ(pool.take(64), end + 64);
}

// The pool holds 64 MiB, of which every second block is freed. The 16 MiB requested next fit into
// none of the gaps.
TEST(BlockPool, GivesBackUnusedBlocksBeforeItTakesMore) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  class LazyDevice final : public FakeDevice {
   public:
    bool release(void* address, std::size_t bytes) override {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % (2 * mib), 0u);
      released += bytes;
      return true;
    }
    Segment allocate_segment(std::size_t) override { return {allocate(1024 * mib), 1024 * mib}; }
    std::size_t released = 0;
  };
  for (const std::size_t gap : {2 * mib, 4 * mib}) {
    LazyDevice device;
    BlockPool pool(device);
    std::vector<std::byte*> blocks;
    for (std::size_t at = 0; at < 64 * mib; at += gap) blocks.push_back(pool.take(gap));
    EXPECT_EQ(pool.figures().held, 64 << 20);
    for (std::size_t i = 0; i < blocks.size(); i += 2) pool.give_back(blocks[i], gap);
    EXPECT_EQ(device.released, 0u);  // the pool may use it again
    pool.take(16 * mib);
    EXPECT_EQ(pool.figures().blocks, 48 << 20);
    EXPECT_EQ(pool.figures().peak_blocks, 64 << 20);
    // Of 80 MiB of address space, the pool may hold a 25th and two blocks more than the 64 MiB.
    EXPECT_LE(pool.figures().held, static_cast<std::int64_t>(70.6 * mib));
    EXPECT_EQ(pool.figures().held + static_cast<std::int64_t>(device.released), 80 << 20);
    EXPECT_EQ(pool.figures().released, static_cast<std::int64_t>(device.released));
    EXPECT_LE(pool.figures().peak_held, static_cast<std::int64_t>(70.6 * mib));
    const auto before = pool.figures().held;
    EXPECT_EQ(pool.take(gap), blocks.front());  // counts as held again, if it was released
    EXPECT_GE(pool.figures().held, before);
  }
}

TEST(Allocator, KeepsSmallBlocksApart) {
  FakeDevice device;
  Ledger ledger;
  Allocator allocator(device, ledger);
  void* const large = allocator.take(3'000'000, Category::activation);
  void* const small = allocator.take(100, Category::optimizer);
  allocator.give_back(large, 3'000'000, Category::activation);
  EXPECT_EQ(allocator.take(1'500'000, Category::activation), large);
  EXPECT_EQ(allocator.figures().device_allocations, 2);
  allocator.give_back(small, 100, Category::optimizer);
  EXPECT_EQ(ledger.figures().total, 1'500'000);
}

}  // namespace
}  // namespace trident
