// The memory that is available on this machine now.
#pragma once

#include <cstdint>
#include <string>

namespace trident {

// The bytes that processes may take before the system swaps or kills a process: the least of
// MemAvailable and the remainders of this process's control groups (cgroup v1 or v2) and of the
// groups above them. Page cache that can be dropped counts as free in both. `root` is put before
// the paths of /proc and /sys.
std::int64_t available_memory(const std::string& root = "");

}  // namespace trident
