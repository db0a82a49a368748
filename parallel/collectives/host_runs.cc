#include "parallel/collectives/host_runs.h"

#include <algorithm>

#include "parallel/collectives/exchange.h"
#include "parallel/nodes.h"

namespace trident {

HostRuns::HostRuns() = default;
HostRuns::~HostRuns() = default;

std::unique_ptr<HostRuns> host_runs(const Nodes& nodes, const std::vector<int>& members, int rank) {
  auto runs = std::make_unique<HostRuns>();
  std::vector<int> seen;
  for (int i = 0; i < static_cast<int>(members.size()); ++i) {
    const int node = nodes.of(members[static_cast<std::size_t>(i)]);
    if (seen.empty() || seen.back() != node) {
      seen.push_back(node);
      runs->begin.push_back(i);
    }
    if (i == rank) runs->own = seen.size() - 1;
  }
  std::sort(seen.begin(), seen.end());
  if (seen.size() < 2 || seen.size() == members.size() ||
      std::adjacent_find(seen.begin(), seen.end()) != seen.end()) {
    return nullptr;
  }
  runs->begin.push_back(static_cast<int>(members.size()));
  return runs;
}

}  // namespace trident
