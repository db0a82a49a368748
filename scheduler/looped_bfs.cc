#include "scheduler/schedules.h"

namespace trident {

Schedule looped_bfs(int stages, int microbatches, int chunks) {
  Schedule schedule{
      "looped_bfs", stages, microbatches, chunks, looped_placement(stages, chunks), {}};
  for (int rank = 0; rank < stages; ++rank) {
    const auto& held = schedule.placement[rank];
    auto& actions = schedule.ranks.emplace_back();
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int i = 0; i < microbatches; ++i) actions.push_back({Kind::forward, held[chunk], i});
    }
    for (int chunk = chunks - 1; chunk >= 0; --chunk) {
      for (int i = microbatches - 1; i >= 0; --i) {
        actions.push_back({Kind::backward, held[chunk], i});
      }
    }
  }
  return schedule;
}

}  // namespace trident
