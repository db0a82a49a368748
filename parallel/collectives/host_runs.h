// Groups that span hosts and have the ranks of each host next to each other. A reduction in rank
// order can then go from host to host (parallel/collectives/carried.h).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace trident {

class Nodes;
struct Membership;

struct HostRuns {
  HostRuns();
  ~HostRuns();

  std::vector<int> begin;  // first group rank of each host's run, then the group's size
  std::size_t own = 0;     // this member's run
  // This member's run as a group that shares memory, and the smallest slot of any run (0: a run has
  // no memory to share). The group's first operation that needs them sets both
  // (parallel/collectives/carried.cc).
  std::unique_ptr<Membership> inside;
  std::optional<std::size_t> slot_bytes;

  int size(std::size_t run) const { return begin[run + 1] - begin[run]; }
  std::size_t hosts() const { return begin.size() - 1; }
};

// Null where all members are on one host, where each is on a host of its own, or where the members
// of a host are not next to each other. `members` holds world ranks by group rank.
std::unique_ptr<HostRuns> host_runs(const Nodes& nodes, const std::vector<int>& members, int rank);

}  // namespace trident
