// What ranks may run of an iteration before the update that ended the last one is known to stand.
//
// Zero-bubble schedules (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 4) let a rank
// begin its next iteration while others still finish the last one: nobody waits for the global norm
// and the check for overflow. Each rank updates at once, runs its warm-up, and compares then, for
// the result has long come round. If the update was wrong it is rolled back and the warm-up is run
// again.
#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/action.h"

namespace trident {

// A link (a peer, one direction) whose messages have not met at the end of the warm-up.
struct Unmatched {
  int peer = 0;
  Kind kind = Kind::forward;  // activations; backward: gradients
  int to_receive = 0;         // came or come from the peer, no receive is posted
  int to_send = 0;            // receives that the peer has posted, nothing is sent yet

  bool operator==(const Unmatched&) const = default;
};

struct WarmUp {
  // Of rank r's lowered list the first length[r] actions. They only run forwards, none of the last
  // stage (whose head makes weight gradients on the way), and wait for nothing that is not sent in
  // the warm-up of another rank. So every rank gets to its end, whatever the others do after
  // theirs.
  std::vector<std::size_t> length;
  // What each rank has to send and receive once more for its links to be as before the warm-up.
  std::vector<std::vector<Unmatched>> unmatched;
};

// `lists` are those of lower(schedule).
WarmUp warm_up_of(const Schedule& schedule, const std::vector<std::vector<LoweredAction>>& lists);

// True where iterations that follow each other with no barrier take less time than apart, by
// simulation with F = B = W = 1 (ZB-H2 and the V schedules; 1F1B's first rank ends last).
bool overlaps_next_iteration(const Schedule& schedule);

}  // namespace trident
