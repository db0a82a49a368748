// Trains a model from its inputs (run/loop/training_inputs.h), on every rank of a transport.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "parallel/transport/transport.h"
#include "report/best_rates.h"
#include "report/iteration_metrics.h"
#include "run/folders/run_folder.h"
#include "run/launch/devices.h"
#include "run/loop/report_facts.h"
#include "run/loop/training_inputs.h"
#include "scheduler/timeline.h"

namespace trident {

// What the surroundings want to know and do; all of it happens on world rank 0.
struct TrainerHooks {
  ReportFacts facts = {};
  // The folders that the run takes hold of once all ranks are ready, before it writes a file; null
  // for a run that holds none.
  std::shared_ptr<FoldersToHold> folders = {};
  // After that. A RequestError ends the run.
  std::function<void(const StartingPoint& start)> on_begin;
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
