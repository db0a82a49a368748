// ZB-H1 and ZB-H2 differ only in the length of the warm-up.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "scheduler/schedules.h"

namespace trident {
namespace {

// Rank r runs `ahead` * (p-1-r) forwards first and delays its weight gradients by `ahead` * r
// micro-batches.
Schedule zero_bubble(const char* kind, int p, int m, int ahead) {
  if (m < 2 * p) {
    throw RequestError(
        fmt::format("{} needs at least twice as many micro-batches as stages, got {} and {}; use "
                    "{} micro-batches or more",
                    kind, m, p, 2 * p));
  }
  Schedule schedule{kind, p, m, 1, looped_placement(p, 1), {}};
  for (int rank = 0; rank < p; ++rank) {
    auto& actions = schedule.ranks.emplace_back();
    int forwards = 0, weights = 0;
    while (forwards < std::min(ahead * (p - 1 - rank), m)) {
      actions.push_back({Kind::forward, rank, forwards++});
    }
    for (int i = 0; i < m; ++i) {
      if (forwards < m) actions.push_back({Kind::forward, rank, forwards++});
      actions.push_back({Kind::backward_input, rank, i});
      if (i >= ahead * rank) actions.push_back({Kind::backward_weight, rank, weights++});
    }
    while (weights < m) actions.push_back({Kind::backward_weight, rank, weights++});
  }
  return schedule;
}

}  // namespace

Schedule zb_h1(int stages, int microbatches) {
  return zero_bubble("zb_h1", stages, microbatches, 1);
}

Schedule zb_h2(int stages, int microbatches) {
  return zero_bubble("zb_h2", stages, microbatches, 2);
}

}  // namespace trident
