#include "core/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temp_dir.h"

namespace trident::testing {
namespace {

class AvailableMemory : public ::testing::Test {
 protected:
  AvailableMemory() { write("/proc/meminfo", "MemTotal: 999 kB\nMemAvailable:  100 kB\n"); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + path).parent_path());
    std::ofstream(root_.path() + path) << text;
  }
  std::int64_t available() const { return available_memory(root_.path()); }

 private:
  TempDir root_;
};

TEST_F(AvailableMemory, WithoutGroupsIsThatOfTheSystem) {
  EXPECT_EQ(available(), 102'400);
  write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(available(), 102'400);
  write("/sys/fs/cgroup/memory.max", "max\n");
  write("/sys/fs/cgroup/memory.current", "5\n");
  EXPECT_EQ(available(), 102'400);
}

TEST_F(AvailableMemory, LeastOfTheGroupsAboveWithDroppableCacheAsFree) {
  write("/proc/self/cgroup", "0::/job/step\n");
  write("/sys/fs/cgroup/job/step/memory.max", "90000\n");
  write("/sys/fs/cgroup/job/step/memory.current", "30000\n");
  EXPECT_EQ(available(), 60'000);
  write("/sys/fs/cgroup/job/step/memory.stat", "active_file 7\ninactive_file 10000\n");
  EXPECT_EQ(available(), 70'000);
  write("/sys/fs/cgroup/job/memory.max", "50000\n");
  write("/sys/fs/cgroup/job/memory.current", "49000\n");
  EXPECT_EQ(available(), 1'000);
  write("/sys/fs/cgroup/job/memory.current", "51000\n");
  EXPECT_EQ(available(), 0);
}

TEST_F(AvailableMemory, GroupsOfVersion1AndAContainerThatSeesItsHostsPath) {
  write("/proc/self/cgroup", "5:devices:/\n4:cpu,memory:/docker/abc\nbroken\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "80000\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "60000\n");
  write("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 2000\n");
  EXPECT_EQ(available(), 22'000);
}

TEST(AvailableMemoryHere, IsMoreThanAMegabyte) {
  EXPECT_GT(available_memory(), 1 << 20);
}

}  // namespace
}  // namespace trident::testing
