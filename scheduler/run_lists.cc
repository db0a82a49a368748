#include "scheduler/run_lists.h"

#include <algorithm>
#include <vector>

namespace trident {

Schedule forward_only(const Schedule& schedule, int window) {
  Schedule forward = schedule;
  for (auto& rank : forward.ranks) {
    std::erase_if(rank, [](const Action& action) { return action.kind != Kind::forward; });
    for (Action& action : rank) action.fused = false;
    std::stable_sort(rank.begin(), rank.end(), [&](const Action& a, const Action& b) {
      return a.microbatch / window < b.microbatch / window;
    });
  }
  return forward;
}

RunLists::RunLists(const Schedule& one, std::int64_t count, Begun since)
    : schedule(one),
      begun(since),
      iterations(one, count, since.iterations),
      window(2 * one.stages),
      forward(forward_only(one, window)) {
  if (overlaps_next_iteration(schedule)) warm_up = warm_up_of(schedule, iterations.of(0).lists);
}

}  // namespace trident
