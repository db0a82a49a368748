// Trains a model from its inputs (run/loop/training_inputs.h), on every rank of a transport.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "core/device.h"
#include "parallel/transport/transport.h"
#include "report/best_rates.h"
#include "report/iteration_metrics.h"
#include "run/launch/devices.h"
#include "run/loop/training_inputs.h"
#include "scheduler/timeline.h"

namespace trident {

// What the surroundings want to know and do; all of it happens on world rank 0.
struct TrainerHooks {
  // When all ranks are ready and have been found equal, before a file is written. Gives the run's
  // id, which goes along with the weights: run_of(start) where it is a run that goes on. A
  // RequestError ends the run.
  std::function<std::string(const StartingPoint& start)> on_begin;
  // Before the report is written: throws where the folders aren't this run's any more.
  std::function<void()> still_held;
  // Before checkpoint.save is written to, on the thread that does: throws where it is another's.
  // Gives what there is to tell, "" for nothing.
  std::function<std::string()> hold_saves;
  // Before the line is written; may add to `extra`.
  std::function<void(IterationMetrics&)> on_iteration;
  std::function<void(const std::string&)> on_message;  // one line for people
  bool quiet = false;                                  // on_message only of what goes wrong
  // Set from a signal handler: finish the iteration, save, stop.
  const std::atomic<bool>* stop = nullptr;
};

struct TrainingSummary {
  std::vector<IterationMetrics> history;  // iterations logged
  bool stopped = false;                   // by the stop flag
  Timeline predicted, timeline;           // of the iteration that was drawn
  std::vector<std::string> written;       // paths of files, for the reader
  JobRate rate;                           // of which MFU is a share
};

// One rank's run; collective over the transport's world. The summary is rank 0's.
TrainingSummary train_rank(const TrainingInputs&, Transport&, Device&, const TrainerHooks&);

// All ranks of a `local` run as threads of this process.
TrainingSummary train_local(const TrainingInputs&, const Devices&, const TrainerHooks&);
TrainingSummary train_local(const TrainingInputs&, const TrainerHooks&);  // on its config's

}  // namespace trident
