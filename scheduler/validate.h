// Checks a schedule from any source (a function of schedules.h or the user's own file).
#pragma once

#include "scheduler/action.h"

namespace trident {

// Throws RequestError with the first twenty problems found (each with the rank, the action's
// position in the rank's list counted from 0, and the action) unless
// - each of the p*v stages is held by exactly one rank, v by each;
// - each rank's actions are of stages it holds and micro-batches in [0, m);
// - each stage has, for each micro-batch, one F and either one B or one I and one W, F before B and
//   I, I before W;
// - a fused pair is a forward and the full backward of another stage or micro-batch;
// - the list ends: no cycle of actions waits for itself (the message shows the cycle), where sends
//   never wait for the receiver;
// - at most max_waiting_transfers transfers of one sender and direction have to wait in a rank's
//   buffers because the rank consumes a later transfer first.
//
// Time and memory are linear in the number of actions.
inline constexpr int max_waiting_transfers = 256;
void validate(const Schedule& schedule);

}  // namespace trident
