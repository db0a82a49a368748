#include <algorithm>

#include "scheduler/schedules.h"

namespace trident {

Schedule one_f_one_b(int stages, int microbatches) {
  Schedule schedule{"1f1b", stages, microbatches, 1, looped_placement(stages, 1), {}};
  for (int rank = 0; rank < stages; ++rank) {
    auto& actions = schedule.ranks.emplace_back();
    const int warmup = std::min(stages - 1 - rank, microbatches);
    for (int i = 0; i < warmup; ++i) actions.push_back({Kind::forward, rank, i});
    for (int i = 0; i < microbatches; ++i) {
      if (warmup + i < microbatches) actions.push_back({Kind::forward, rank, warmup + i});
      actions.push_back({Kind::backward, rank, i});
    }
  }
  return schedule;
}

}  // namespace trident
