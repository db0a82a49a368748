#include <algorithm>

#include "scheduler/interleaved.h"
#include "scheduler/schedules.h"

namespace trident {

Schedule interleaved_one_f_one_b(int stages, int microbatches, int chunks, int group_size) {
  const int p = stages, m = microbatches, v = chunks;
  const int g = interleaved_group_size("interleaved_1f1b", p, m, group_size);
  Schedule schedule{"interleaved_1f1b", p, m, v, looped_placement(p, v), {}};
  const std::vector<ChunkMicrobatch> order = chunk_order(m, v, g);
  const int64_t total = static_cast<int64_t>(order.size());
  for (int rank = 0; rank < p; ++rank) {
    const auto& held = schedule.placement[rank];
    auto& actions = schedule.ranks.emplace_back();
    actions.reserve(2 * total);
    const int64_t warmup = std::min<int64_t>(2 * (p - rank - 1) + int64_t{v - 1} * g, total);
    for (int64_t k = 0; k < warmup + total; ++k) {
      if (k < total) {
        actions.push_back({Kind::forward, held[order[k].chunk], order[k].microbatch});
      }
      if (k >= warmup) {
        const ChunkMicrobatch& back = order[k - warmup];
        actions.push_back({Kind::backward, held[v - 1 - back.chunk], back.microbatch});
      }
    }
  }
  return schedule;
}

}  // namespace trident
