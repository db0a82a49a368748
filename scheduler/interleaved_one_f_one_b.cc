#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "scheduler/schedules.h"

namespace trident {

namespace {

// The group size by the rule alone; 0 where m can't be cut.
int default_group_size(int p, int m) {
  if (m % p == 0) return p;
  const int groups = std::max(1, m / p);
  return m % groups == 0 ? m / groups : 0;
}

struct ChunkAction {
  int chunk;
  int microbatch;
};

// The order of the chunk-forwards, the same on every rank.
std::vector<ChunkAction> chunk_order(int m, int v, int g) {
  std::vector<ChunkAction> order;
  order.reserve(static_cast<size_t>(m) * v);
  for (int first = 0; first < m; first += g) {
    const int last = std::min(first + g, m);
    for (int chunk = 0; chunk < v; ++chunk) {
      for (int i = first; i < last; ++i) order.push_back({chunk, i});
    }
  }
  return order;
}

}  // namespace

int interleaved_group_size(int stages, int microbatches, int group_size) {
  const int p = stages, m = microbatches, g = group_size;
  if (g == 0) {
    if (const int rule = default_group_size(p, m)) return rule;
    int below = m - 1, above = m + 1;  // both loops end: multiples of p can always be cut
    while (default_group_size(p, below) == 0) --below;
    while (default_group_size(p, above) == 0) ++above;
    throw RequestError(fmt::format(
        "interleaved_1f1b can't run {} micro-batches on {} stages: neither {} nor floor({}/{}) = "
        "{} divides {}; use {} or {} micro-batches, or set the group size",
        m, p, p, m, p, m / p, m, below, above));
  }
  const auto fits = [&](int size) {
    return size >= p && size <= m && (m % size == 0 || m % size >= p);
  };
  if (fits(g) || g == default_group_size(p, m)) return g;
  if (m < p) {
    throw RequestError(fmt::format(
        "interleaved_1f1b has fewer micro-batches ({}) than stages ({}), which run as one group; "
        "got group size {}, leave it out or use at least {} micro-batches",
        m, p, g, p));
  }
  int nearest = m;  // m itself always fits
  for (int size = p; size <= m; ++size) {
    if (fits(size) && std::abs(size - g) < std::abs(nearest - g)) nearest = size;
  }
  throw RequestError(fmt::format(
      "interleaved_1f1b group size {} doesn't fit {} micro-batches on {} stages: it has to be from "
      "{} to {}, and {} mod it zero or at least {}; the nearest that fits is {}",
      g, m, p, p, m, m, p, nearest));
}

Schedule interleaved_one_f_one_b(int stages, int microbatches, int chunks, int group_size) {
  const int p = stages, m = microbatches, v = chunks;
  const int g = interleaved_group_size(p, m, group_size);
  Schedule schedule{"interleaved_1f1b", p, m, v, looped_placement(p, v), {}};
  const std::vector<ChunkAction> order = chunk_order(m, v, g);
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
        const ChunkAction& back = order[k - warmup];
        actions.push_back({Kind::backward, held[v - 1 - back.chunk], back.microbatch});
      }
    }
  }
  return schedule;
}

}  // namespace trident
