// Groups that span hosts and have the ranks of each host next to each other: what lets a reduction
// in rank order go from host to host.
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
  // This member's run as a group that shares memory, and the smallest desk of any run's (0: one has
  // no memory to share). Known with the group's first operation that asks (carried.cc).
  std::unique_ptr<Membership> inside;
  std::optional<std::size_t> slot_bytes;

  int size(std::size_t run) const { return begin[run + 1] - begin[run]; }
  std::size_t hosts() const { return begin.size() - 1; }
};

// Null where all members are on one host, each on its own, or those of a host are apart from each
// other. `members`: world ranks by group rank.
std::unique_ptr<HostRuns> host_runs(const Nodes& nodes, const std::vector<int>& members, int rank);

}  // namespace trident
