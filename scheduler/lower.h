// Adds the transfers to a schedule's compute actions: a pure function that returns data.
#pragma once

#include <vector>

#include "scheduler/action.h"

namespace trident {

// The lowered list of every rank. Each compute that needs an activation or a gradient of another
// rank has a wait just before it; its receive is posted `receive_ahead` compute actions earlier
// (before the waits of that action), so that the transfer overlaps with compute. What a compute
// makes for another rank is sent right after it. Two stages on one rank exchange nothing. A fused
// pair is one compute here: the waits of both, both, the sends of both.
//
// A link is what one rank sends another in one direction, forward or backward. On each link
// receives are posted in the order in which the sender sends, so a transport need not tell messages
// apart: an ordered channel for each link is enough (local, MPI and NCCL alike), and a receive may
// be posted long before its wait where the two ranks order their micro-batches differently. Sends
// never wait for the peer. So a wait depends on nothing but that the sender's action has run, and a
// schedule without a cycle of actions (validate.h) has none of transfers, whatever the order in
// which links make progress. The schedule must be valid; for evaluation it may be forward only.
std::vector<std::vector<LoweredAction>> lower(const Schedule& schedule, int receive_ahead = 1);
// That of one rank alone: work and memory in proportion to it and its neighbours' lists.
std::vector<LoweredAction> lower_rank(const Schedule& schedule, int rank, int receive_ahead = 1);

}  // namespace trident
