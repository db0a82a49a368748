// Trains a model from its inputs (run/loop/training_inputs.h), on every rank of a transport. Throws
// RequestError if the request is wrong (ranks differ, folders are in use), Error if the run fails.
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
#include "run/loop/report_facts.h"
#include "run/loop/training_inputs.h"
#include "run/processes/devices.h"
#include "scheduler/timeline.h"

namespace trident {

// Callbacks and options of the calling program. Only world rank 0 uses the callbacks.
struct TrainerHooks {
  ReportFacts facts = {};
  // The folders that the run locks once all ranks are ready, before it writes a file; null for a
  // run without locks.
  std::shared_ptr<FoldersToHold> folders = {};
  // Called after that. A RequestError ends the run.
  std::function<void(const StartingPoint& start)> on_begin;
  // Called before the line of an iteration is written; may add to `extra`.
  std::function<void(IterationMetrics&)> on_iteration;
  std::function<void(const std::string&)> on_message;  // gets one line for people
  bool quiet = false;                                  // on_message only gets warnings and problems
  // A signal handler sets it; the run then finishes the iteration, saves and stops. Null: none.
  const std::atomic<bool>* stop = nullptr;
};

struct TrainingSummary {
  std::vector<IterationMetrics> history;  // the iterations logged
  bool stopped = false;                   // ended by the stop flag
  Timeline predicted, timeline;           // of the iteration that is drawn
  std::vector<std::string> written;       // paths of files and folders, for people
  JobRate rate;                           // the basis of MFU
  std::string sample;                     // a text generated from the weights, "" for none
};

// Runs one rank. Collective over the transport's world. Only rank 0 gets a filled summary.
TrainingSummary train_rank(const TrainingInputs&, Transport&, Device&, const TrainerHooks&);

// Runs all ranks of a `local` run as threads of this process, on `devices`.
TrainingSummary train_local(const TrainingInputs&, const Devices&, const TrainerHooks&);
TrainingSummary train_local(const TrainingInputs&, const TrainerHooks&);  // on the config's devices

}  // namespace trident
