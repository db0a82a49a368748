// The main job: trains a model from a config, on every rank of a transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/device.h"
#include "models/architecture.h"
#include "parallel/state.h"
#include "parallel/transport/transport.h"
#include "scheduler/run_lists.h"
#include "scheduler/timeline.h"
#include "training/data/datasets.h"
#include "training/hugging_face/hugging_face_extras.h"
#include "training/plan/plan.h"
#include "training/report/iteration_metrics.h"
#include "training/run/devices.h"

namespace trident {

// What the surroundings want to know and do; all of it happens on world rank 0.
struct TrainerHooks {
  // When all ranks are ready and have been found equal, before a file is written. Gives the run's
  // id, which goes along with the weights. A RequestError ends the run.
  std::function<std::string()> on_begin;
  // Before weights and report are written: throws where the folders aren't this run's any more.
  std::function<void()> still_held;
  // Before the line is written; may add to `extra`.
  std::function<void(IterationMetrics&)> on_iteration;
  std::function<void(const std::string&)> on_message;  // one line for people
  // Set from a signal handler: finish the iteration, save, stop.
  const std::atomic<bool>* stop = nullptr;
};

struct TrainingSummary {
  std::vector<IterationMetrics> history;  // iterations logged
  bool stopped = false;                   // by the stop flag
  Timeline predicted, timeline;           // of the iteration that was drawn
  std::vector<std::string> written;       // paths of files, for the reader
};

// What all ranks of a process share: sources are opened and checked once.
struct TrainingInputs {
  Config config;        // train_iters known
  std::string written;  // LoadedConfig::written; "": not known
  std::shared_ptr<const Architecture> architecture;
  Schedule schedule;
  std::shared_ptr<const RunLists> lists;  // of the schedule, for all ranks of this process
  std::optional<Plan> plan;               // for the report; made for it where none is given
  Datasets datasets;
  // Saved with the weights: of checkpoint.load, and the data's tokenizer, both of which may be gone
  // by then.
  HuggingFaceExtras extras;
  // A run that goes on: its first iteration, from 0, and who gives each rank the state that it
  // begins with in place of initial weights (go_on_from()).
  std::int64_t first_iteration = 0;
  std::function<void(Context&, State&)> restore;
  double product_rate = 0;  // FLOP/s of all ranks' cores together, for MFU; 0: unknown
};

// Opens the data, turns train_epochs into iterations, checks schedule and weights. RequestError
// with all that is wrong. Writes nothing.
TrainingInputs prepare_training(const LoadedConfig&);
TrainingInputs prepare_training(const Config&);

// Lets the run begin at iteration k, from 0, with a state: `restore` writes what Stepper::state()
// lists beside weights and gradients, and the trainer's own numbers: "iteration", which has to be
// k, and "skipped". A synchronous run then goes on as if it had never stopped; an asynchronous one
// fills its pipeline anew.
void go_on_from(TrainingInputs&, std::int64_t k, std::function<void(Context&, State&)> restore);

// One rank's run; collective over the transport's world. The summary is rank 0's.
TrainingSummary train_rank(const TrainingInputs&, Transport&, Device&, const TrainerHooks&);

// All ranks of a `local` run as threads of this process.
TrainingSummary train_local(const TrainingInputs&, const Devices&, const TrainerHooks&);
TrainingSummary train_local(const TrainingInputs&, const TrainerHooks&);  // on its config's

}  // namespace trident
