// Times of tests that wait, by how slow their threads may be.
#pragma once

#include <chrono>

namespace trident {

// A busy machine holds threads up for longer than these tests wait, under a sanitizer above all.
inline std::chrono::milliseconds slowly(int count) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return std::chrono::milliseconds(5 * count);
#else
  return std::chrono::milliseconds(count);
#endif
}

}  // namespace trident
