#include "core/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace trident {
namespace {

constexpr std::int64_t none = -1;

// The number that a file begins with; `none` if there is no file or it contains "max".
std::int64_t number(const std::string& path) {
  std::int64_t value = none;
  std::ifstream file(path);
  return file >> value ? value : none;
}

// The number after the word `key`.
std::int64_t number_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::int64_t value = 0;
    if (word == key && file >> value) return value;
  }
  return none;
}

struct ControlFiles {
  const char *limit, *usage, *droppable;
};
constexpr ControlFiles version_1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                                 "total_inactive_file"};
constexpr ControlFiles version_2{"memory.max", "memory.current", "inactive_file"};

// The least that the group and the groups above it leave. A container may see the path of its host,
// whose groups don't exist in it.
std::int64_t left_in(const std::string& mount, std::string group, const ControlFiles& files) {
  std::int64_t left = std::numeric_limits<std::int64_t>::max();
  for (;;) {
    const std::string directory = mount + group + "/";
    const std::int64_t limit = number(directory + files.limit);
    const std::int64_t usage = number(directory + files.usage);
    if (limit > 0 && usage >= 0) {
      const std::int64_t droppable = number_of(directory + "memory.stat", files.droppable);
      const std::int64_t used = usage - std::max<std::int64_t>(0, droppable);
      left = std::min(left, std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, used)));
    }
    if (group.empty()) return left;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

std::int64_t available_memory(const std::string& root) {
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  if (const std::int64_t kib = number_of(root + "/proc/meminfo", "MemAvailable:"); kib >= 0) {
    bytes = kib * 1024;
  }
  // Lines "id:controllers:/group"; version 2 has no controllers.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string group = line.substr(second + 1) == "/" ? "" : line.substr(second + 1);
    std::istringstream controllers(line.substr(first + 1, second - first - 1));
    if (second == first + 1)
      bytes = std::min(bytes, left_in(root + "/sys/fs/cgroup", group, version_2));
    for (std::string name; std::getline(controllers, name, ',');) {
      if (name == "memory") {
        bytes = std::min(bytes, left_in(root + "/sys/fs/cgroup/memory", group, version_1));
      }
    }
  }
  return bytes;
}

}  // namespace trident
