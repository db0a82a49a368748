// Runs a schedule over real ranks, with stages that sleep for a given time in place of a model.
// This measures the schedule's bubble on this machine's transport.
#pragma once

#include <optional>

#include "parallel/transport/transport.h"
#include "scheduler/simulate.h"

namespace trident {

// Runs this rank's part of `schedule`. World rank 0 gets the actions of all ranks, in milliseconds
// of wall-clock time since the first action began; the other ranks get nullopt. Collective over the
// transport's world. Requires a valid schedule; RequestError unless the world has schedule.stages
// ranks.
//
// The executor runs the lowered lists. A stage sleeps for its time (`times`, in milliseconds) once
// its inputs have arrived, so a rank needs no core of its own. A message counts as arrived
// `transfer` milliseconds after it was sent, by the clock that the ranks of a node share. Simulated
// times are not used. Returns the shortest of up to `most_runs` runs, since other load only adds
// time.
std::optional<Simulation> run_timed(const Schedule& schedule, const StageTimes& times,
                                    double transfer, Transport& transport, int most_runs = 25);

// The same on schedule.stages in-process ranks.
Simulation run_timed_local(const Schedule& schedule, const StageTimes& times, double transfer,
                           int most_runs = 25);

}  // namespace trident
