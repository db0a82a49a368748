#include "scheduler/interleaved.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace trident {

namespace {

// The group size by the rule alone; 0 where m can't be cut.
int default_group_size(int p, int m) {
  if (m % p == 0) return p;
  const int groups = std::max(1, m / p);
  return m % groups == 0 ? m / groups : 0;
}

}  // namespace

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

int interleaved_group_size(const std::string& kind, int stages, int microbatches, int group_size) {
  const int p = stages, m = microbatches, g = group_size;
  if (g == 0) {
    if (const int rule = default_group_size(p, m)) return rule;
    int below = m - 1, above = m + 1;  // both loops end: multiples of p can always be cut
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
