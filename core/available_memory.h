// How much memory this machine would give now.
#pragma once

#include <cstdint>
#include <string>

namespace trident {

// Bytes that processes may take before the system swaps or ends one: MemAvailable, and what the
// control groups (cgroup v1 or v2) of this process and those above leave; page cache that can be
// dropped counts as free in both. `root` is put before the paths of /proc and /sys.
std::int64_t available_memory(const std::string& root = "");

}  // namespace trident
