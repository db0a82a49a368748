// Durations of tests that wait, scaled for slow threads.
#pragma once

#include <chrono>

namespace trident {

// A busy machine delays threads for longer than these tests wait, above all under a sanitizer.
inline std::chrono::milliseconds slowly(int count) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return std::chrono::milliseconds(5 * count);
#else
  return std::chrono::milliseconds(count);
#endif
}

}  // namespace trident
