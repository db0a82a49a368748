// Divides attention over threads. The work is a list of tasks of equal cost, each a sample and a
// key/value head. A task has units: the blocks of queries (forward) or of keys (backward) of each
// of its query heads. A thread gets consecutive whole tasks or, where that shortens the longest
// share by a tenth, consecutive units of about the same cost. Private to kernels/cpu.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace trident::cpu {

// Units [begin, end) of a task.
struct AttentionShare {
  std::int64_t task = 0, begin = 0, end = 0;
};

class AttentionShares {
 public:
  // For at most `threads` threads.
  AttentionShares(const AttentionShape&, const AttentionMask&, bool backward, int threads);
  int threads() const { return threads_; }
  // The shares of a thread, by task. Only the first and the last can be parts of their tasks.
  const std::vector<AttentionShare>& of(int thread) const {
    return shares_[static_cast<std::size_t>(thread)];
  }
  std::int64_t units_of_head() const { return static_cast<std::int64_t>(costs_.size()); }
  bool is_whole(const AttentionShare& share) const {
    return share.begin == 0 && share.end == heads_ * units_of_head();
  }
  // Whether a task is divided, and the largest number of parts that a thread has.
  bool divides() const { return most_parts_ > 0; }
  int most_parts() const { return most_parts_; }
  bool any_whole() const { return any_whole_; }

 private:
  struct Place {
    std::int64_t task = 0, unit = 0;
  };
  // Where the work of a thread begins.
  Place begin_of(int thread, bool divided) const;
  // The cost of the longest share.
  std::int64_t longest(bool divided) const;
  std::int64_t cost_before(const Place&) const;

  std::int64_t tasks_, heads_;
  std::vector<std::int64_t> costs_;   // of a head's units
  std::vector<std::int64_t> before_;  // of the units before each unit of a head, and of all
  int threads_ = 0;
  std::vector<std::vector<AttentionShare>> shares_;  // by thread
  int most_parts_ = 0;
  bool any_whole_ = false;
};

}  // namespace trident::cpu
