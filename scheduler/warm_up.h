// The warm-up of post-validation: the actions of an iteration that ranks may run before the last
// iteration's update is validated.
//
// Zero-bubble schedules (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 4) let a rank
// begin its next iteration while others still finish the last one. So no rank waits for the global
// norm and the check for overflow. Each rank updates at once, runs its warm-up, and only then reads
// the result, which has arrived meanwhile. If the update was wrong, the rank rolls it back and runs
// the warm-up again.
#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/action.h"

namespace trident {

// A link (a peer and a direction) whose sends and receives differ in number at the end of the
// warm-up.
struct Unmatched {
  int peer = 0;
  Kind kind = Kind::forward;  // activations; backward: gradients
  int to_receive = 0;         // messages of the peer without a posted receive
  int to_send = 0;            // receives that the peer has posted without a send

  bool operator==(const Unmatched&) const = default;
};

struct WarmUp {
  // length[r] is the number of actions of rank r's lowered list in its warm-up. They are forwards
  // only, without the last stage's (whose head already makes weight gradients). They wait only for
  // messages that another rank sends in its warm-up. So every rank can finish its warm-up, whatever
  // the others do after theirs.
  std::vector<std::size_t> length;
  // The messages that each rank has to send and receive again to restore its links to their state
  // before the warm-up.
  std::vector<std::vector<Unmatched>> unmatched;
};

// `lists` are the lists of lower(schedule).
WarmUp warm_up_of(const Schedule& schedule, const std::vector<std::vector<LoweredAction>>& lists);

// True if iterations without a barrier between them take less time than with one, in a simulation
// with F = B = W = 1. It is true for ZB-H2 and the V schedules, but not for 1F1B, whose first rank
// ends last.
bool overlaps_next_iteration(const Schedule& schedule);

}  // namespace trident
