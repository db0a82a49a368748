// Where a run saves, before it goes on: what lies there of an earlier start is looked at, sets that
// it goes back behind are put aside, and the nodes' folders are made.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/node_folder.h"
#include "run/loop/run_reporter.h"
#include "run/loop/training_inputs.h"

namespace trident {

struct BegunSaves {
  std::string run_id;
  std::string start;          // record_start(); "" where that could not be written
  std::int64_t sequence = 0;  // the largest of the checkpoints that are there
};

// Collective over `files`, a patient group of the world, before the log files are written.
// `run_id`: on rank 0. `saves`: whether the run has checkpoints. `place`: with files and role where
// the nodes have some; gets the rest. Checkpoints that the run goes back behind, or could not go on
// from, are set aside; those on nodes are removed. Error, before anything is moved, where
// checkpoints on nodes have come or gone since the start was found, or their folders can't be made.
BegunSaves begin_saves(const TrainingInputs&, const ProcessGroup& files, RunReporter&,
                       const std::string& run_id, bool saves, NodePlace& place);

}  // namespace trident
