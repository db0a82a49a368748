// Adds the transfers to a schedule's compute actions. Pure functions that return data.
#pragma once

#include <vector>

#include "scheduler/action.h"

namespace trident {

// Returns the lowered list of every rank. Each compute that needs an activation or a gradient of
// another rank has a wait just before it. Its receive is posted `receive_ahead` compute actions
// earlier (before the waits of that action), so that the transfer overlaps with compute. A
// compute's output for another rank is sent right after it. Two stages on one rank exchange no
// message. A fused pair counts as one compute: the waits of both, then both, then the sends of
// both.
//
// A link carries the messages of one rank to another in one direction, forward or backward. On each
// link receives are posted in the order in which the sender sends. So a transport need not match
// messages: an ordered channel per link is enough (local, MPI and NCCL alike). A receive may be
// posted long before its wait where the two ranks order their micro-batches differently. Sends
// never wait for the peer. So a wait depends only on the sender having run its action: a schedule
// without a cycle of actions (validate.h) has no cycle of transfers, in whatever order links make
// progress. The schedule must be valid; for evaluation it may be forward only.
std::vector<std::vector<LoweredAction>> lower(const Schedule& schedule, int receive_ahead = 1);
// The lowered list of one rank. Work and memory are proportional to the lists of this rank and its
// neighbours.
std::vector<LoweredAction> lower_rank(const Schedule& schedule, int rank, int receive_ahead = 1);

}  // namespace trident
