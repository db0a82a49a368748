#include <algorithm>

#include "scheduler/schedules.h"
#include "scheduler/v_shape.h"

namespace trident {

Schedule zbv(int stages, int microbatches) {
  const int p = stages, m = microbatches;
  const int planned = std::max(m, 2 * p - 1);  // the rule needs this many to fill the pipeline
  Schedule schedule{"zbv", p, m, 2, v_placement(p), {}};
  for (int rank = 0; rank < p; ++rank) {
    VActions next(schedule.placement[rank], m);
    const auto times = [](int count, auto step) {
      for (int i = 0; i < count; ++i) step();
    };
    const auto forward = [&](int chunk) { next.add(Kind::forward, chunk); };
    const auto input = [&](int chunk) { next.add(Kind::backward_input, chunk); };
    const auto weight = [&](int chunk) { next.add(Kind::backward_weight, chunk); };
    times(2 * (p - rank) - 1, [&] { forward(0); });
    times(rank, [&] {
      forward(1);
      forward(0);
    });
    times(p - rank, [&] {
      forward(1);
      input(1);
      weight(1);
    });
    while (next.count(Kind::forward, 0) < planned ||
           next.count(Kind::forward, 1) < next.count(Kind::forward, 0)) {
      if (next.count(Kind::forward, 0) < planned) forward(0);
      input(0);
      weight(0);
      forward(1);
      input(1);
      weight(1);
    }
    times(rank, [&] {
      input(0);
      input(1);
    });
    times(p - rank, [&] {
      input(0);
      weight(0);
    });
    for (const int chunk : {1, 0}) {
      while (next.count(Kind::backward_weight, chunk) < next.count(Kind::backward_input, chunk)) {
        weight(chunk);
      }
    }
    schedule.ranks.push_back(next.take());
  }
  return schedule;
}

}  // namespace trident
