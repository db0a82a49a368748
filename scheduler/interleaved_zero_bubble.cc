#include <algorithm>

#include "scheduler/interleaved.h"
#include "scheduler/schedules.h"

namespace trident {

Schedule interleaved_zero_bubble(int stages, int microbatches, int chunks, int group_size) {
  const int p = stages, m = microbatches, v = chunks;
  const int g = interleaved_group_size("interleaved_zero_bubble", p, m, group_size);
  Schedule schedule{"interleaved_zero_bubble", p, m, v, looped_placement(p, v), {}};
  const std::vector<ChunkMicrobatch> order = chunk_order(m, v, g);
  const auto total = static_cast<std::int64_t>(order.size());
  for (int rank = 0; rank < p; ++rank) {
    const auto& held = schedule.placement[rank];
    auto& actions = schedule.ranks.emplace_back();
    actions.reserve(3 * order.size());
    const std::int64_t warmup =
        std::min<std::int64_t>(p - rank - 1 + std::int64_t{v - 1} * g, total);
    const auto back = [&](Kind kind, std::int64_t k) {
      actions.push_back({kind, held[v - 1 - order[k].chunk], order[k].microbatch});
    };
    std::int64_t weights = 0;
    for (std::int64_t k = 0; k < warmup + total; ++k) {
      if (k < total) actions.push_back({Kind::forward, held[order[k].chunk], order[k].microbatch});
      if (k < warmup) continue;
      back(Kind::backward_input, k - warmup);
      if (k - warmup >= rank) back(Kind::backward_weight, weights++);
    }
    while (weights < total) back(Kind::backward_weight, weights++);
  }
  return schedule;
}

}  // namespace trident
