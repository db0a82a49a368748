#include "scheduler/interleaved.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace trident {

namespace {

struct ChunkMicrobatch {
  int chunk;
  int microbatch;
};

std::vector<ChunkMicrobatch> chunk_order(int m, int v, int g) {
  std::vector<ChunkMicrobatch> order;
  order.reserve(static_cast<size_t>(m) * v);
  for (int first = 0; first < m; first += g) {
    const int last = std::min(first + g, m);
    for (int chunk = 0; chunk < v; ++chunk) {
      for (int i = first; i < last; ++i) order.push_back({chunk, i});
    }
  }
  return order;
}

// The default group size; 0 where m can't be divided into groups.
int default_group_size(int p, int m) {
  if (m % p == 0) return p;
  const int groups = std::max(1, m / p);
  return m % groups == 0 ? m / groups : 0;
}

}  // namespace

Schedule interleaved(const ScheduleRequest& request, int lead, bool split) {
  const int p = request.stages, m = request.microbatches, v = request.chunks;
  const int g = interleaved_group_size(request.kind, p, m, request.group_size);
  Schedule schedule{request.kind, p, m, v, looped_placement(p, v), {}};
  const std::vector<ChunkMicrobatch> order = chunk_order(m, v, g);
  const auto total = static_cast<int64_t>(order.size());
  for (int rank = 0; rank < p; ++rank) {
    const auto& held = schedule.placement[rank];
    auto& actions = schedule.ranks.emplace_back();
    actions.reserve((split ? 3 : 2) * order.size());
    const auto back = [&](Kind kind, int64_t k) {
      actions.push_back({kind, held[v - 1 - order[k].chunk], order[k].microbatch});
    };
    const int64_t warmup = std::min(lead * int64_t{p - rank - 1} + int64_t{v - 1} * g, total);
    int64_t weights = split ? 0 : total;
    for (int64_t k = 0; k < warmup + total; ++k) {
      if (k < total) actions.push_back({Kind::forward, held[order[k].chunk], order[k].microbatch});
      if (k < warmup) continue;
      back(split ? Kind::backward_input : Kind::backward, k - warmup);
      if (split && k - warmup >= rank) back(Kind::backward_weight, weights++);
    }
    while (weights < total) back(Kind::backward_weight, weights++);
  }
  return schedule;
}

int interleaved_group_size(const std::string& kind, int stages, int microbatches, int group_size) {
  const int p = stages, m = microbatches, g = group_size;
  if (g == 0) {
    if (const int rule = default_group_size(p, m)) return rule;
    int below = m - 1, above = m + 1;  // both loops end: multiples of p always have a group size
    while (default_group_size(p, below) == 0) --below;
    while (default_group_size(p, above) == 0) ++above;
    throw RequestError(
        fmt::format("{} can't run {} micro-batches on {} stages: neither {} nor floor({}/{}) = "
                    "{} divides {}; use {} or {} micro-batches, or set the group size",
                    kind, m, p, p, m, p, m / p, m, below, above));
  }
  const auto fits = [&](int size) {
    return size >= p && size <= m && (m % size == 0 || m % size >= p);
  };
  if (fits(g) || g == default_group_size(p, m)) return g;
  if (m < p) {
    throw RequestError(
        fmt::format("{} has fewer micro-batches ({}) than stages ({}), which run as one group; "
                    "got group size {}, leave it out or use at least {} micro-batches",
                    kind, m, p, g, p));
  }
  int nearest = m;  // m itself always fits
  for (int size = p; size <= m; ++size) {
    if (fits(size) && std::abs(size - g) < std::abs(nearest - g)) nearest = size;
  }
  throw RequestError(
      fmt::format("{} group size {} doesn't fit {} micro-batches on {} stages: it has to be from "
                  "{} to {}, and {} mod it zero or at least {}; the nearest that fits is {}",
                  kind, g, m, p, p, m, m, p, nearest));
}

}  // namespace trident
