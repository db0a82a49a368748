#include <fmt/format.h>

#include "base/error.h"
#include "scheduler/schedules.h"
#include "scheduler/v_shape.h"

namespace trident {

Schedule dualpipev(int stages, int microbatches) {
  const int p = stages, m = microbatches;
  if (m < 2 * p) {
    throw RequestError(fmt::format(
        "dualpipev needs at least as many micro-batches as stages, two a rank, got {} and {}; use "
        "{} micro-batches or more",
        m, 2 * p, 2 * p));
  }
  Schedule schedule{"dualpipev", p, m, 2, v_placement(p), {}};
  for (int rank = 0; rank < p; ++rank) {
    VActions next(schedule.placement[rank], m);
    const int after = p - rank - 1;  // ranks after this one
    for (int i = 0; i < 2 * after; ++i) next.add(Kind::forward, 0);
    for (int i = 0; i <= rank; ++i) {
      next.add(Kind::forward, 0);
      next.add(Kind::forward, 1);
    }
    for (int i = 0; i < after; ++i) {
      next.add(Kind::backward_input, 1);
      next.add_oldest_weight();
      next.add(Kind::forward, 1);
    }
    for (int i = 0; i < m - 2 * p + rank + 1; ++i) {
      if (i == 0 && rank == p - 1) {  // DualPipeV doesn't overlap this pair
        next.add(Kind::forward, 0);
        next.add(Kind::backward, 1);
      } else {
        next.add_pair(0, 1);
      }
      next.add_pair(1, 0);
    }
    for (int i = 0; i < after; ++i) {
      next.add(Kind::backward, 1);
      next.add_pair(1, 0);
    }
    const int half = (rank + 1) / 2;  // from here on backwards are split and W is delayed
    for (int i = 0; i <= rank; ++i) {
      const bool first_split = rank % 2 == 1 ? i >= half : i > half;
      next.add(first_split ? Kind::backward_input : Kind::backward, 1);
      next.add(i >= half ? Kind::backward_input : Kind::backward, 0);
    }
    for (int i = 0; i < after; ++i) {
      next.add_oldest_weight();
      next.add(Kind::backward_input, 0);
    }
    for (int i = 0; i <= rank; ++i) next.add_oldest_weight();
    schedule.ranks.push_back(next.take());
  }
  return schedule;
}

}  // namespace trident
