// Runs a schedule over real ranks with stages that take a given time: the bubble of the list on
// this machine's transport, with no model.
#pragma once

#include <optional>

#include "parallel/transport/transport.h"
#include "scheduler/simulate.h"

namespace trident {

// Milliseconds, by the clock, that this rank's part of `schedule` took beside the others': on world
// rank 0 the actions of all ranks counted from the first one's start, none on others. The executor
// runs the lowered lists; a stage sleeps for its time (`times`, in milliseconds) once its inputs
// have arrived, so ranks need no cores of their own, and a message counts as arrived `transfer`
// milliseconds after it was sent (ranks of one node share the clock that tells). Nothing here knows
// simulated times. Up to `most_runs` runs, of which the shortest counts: other work of the machine
// only ever adds time. The world has schedule.stages ranks, else RequestError; all of them call it.
// The schedule must be valid.
std::optional<Simulation> run_timed(const Schedule& schedule, const StageTimes& times,
                                    double transfer, Transport& transport, int most_runs = 25);

// The same on as many in-process ranks as the schedule has.
Simulation run_timed_local(const Schedule& schedule, const StageTimes& times, double transfer,
                           int most_runs = 25);

}  // namespace trident
