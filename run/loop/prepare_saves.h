// Prepares the places where a run saves, before its first iteration: examines the checkpoints of
// earlier starts, quarantines the ones that are later than the run's starting point, and makes the
// folders on the nodes.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/node_folder.h"
#include "run/loop/run_reporter.h"
#include "run/loop/training_inputs.h"

namespace trident {

struct PreparedSaves {
  std::string run_id;
  std::string start;          // record_start(); "" if it could not be written
  std::int64_t sequence = 0;  // the largest one of the existing checkpoints
};

// Collective over `files`, a group of the world without time-out, before the log files are written.
// `run_id` is read on rank 0. `saves`: whether the run saves checkpoints. If
// checkpoint.local.interval is above 0, the caller sets files and role of `place`, and the function
// sets the rest. In checkpoint.save it quarantines checkpoints that are damaged or later than the
// starting point; on nodes it removes them. Throws Error, before it moves anything, if checkpoints
// on nodes have come or gone since the search for the start, or if their folders can't be made.
PreparedSaves prepare_saves(const TrainingInputs&, const ProcessGroup& files, RunReporter&,
                            const std::string& run_id, bool saves, NodePlace& place);

}  // namespace trident
