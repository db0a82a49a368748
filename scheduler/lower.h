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
// Two ranks may exchange activations and gradients in both directions and, within one direction,
// in another order than they post: match them by transfer_tag (action.h), not by arrival.
// The schedule must be valid (validate.h).
std::vector<std::vector<LoweredAction>> lower(const Schedule& schedule, int receive_ahead = 1);

}  // namespace trident
