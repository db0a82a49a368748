// NVTX's ranges, recorded for tests.
#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace emulation {

struct Ranges {
  std::mutex mutex;
  std::vector<std::string> begun;  // by all threads
  int open = 0;
};
inline Ranges& ranges() {
  static Ranges it;
  return it;
}

}  // namespace emulation

inline int nvtxRangePushA(const char* name) {
  emulation::Ranges& all = emulation::ranges();
  const std::lock_guard lock(all.mutex);
  all.begun.push_back(name);
  return all.open++;
}
inline int nvtxRangePop() {
  emulation::Ranges& all = emulation::ranges();
  const std::lock_guard lock(all.mutex);
  return --all.open;
}
