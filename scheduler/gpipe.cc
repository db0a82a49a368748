#include "scheduler/schedules.h"

namespace trident {

Schedule gpipe(int stages, int microbatches) {
  Schedule schedule{"gpipe", stages, microbatches, 1, looped_placement(stages, 1), {}};
  for (int rank = 0; rank < stages; ++rank) {
    auto& actions = schedule.ranks.emplace_back();
    for (int i = 0; i < microbatches; ++i) actions.push_back({Kind::forward, rank, i});
    for (int i = 0; i < microbatches; ++i) actions.push_back({Kind::backward, rank, i});
  }
  return schedule;
}

}  // namespace trident
