// The inputs of a run, checked before it begins: config, model, schedule, data, the files that are
// saved with the weights, and the place at which it begins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "checkpoint/found_on_nodes.h"
#include "core/context.h"
#include "datasets/batch_sizes.h"
#include "datasets/datasets.h"
#include "formats/hugging_face/hugging_face_extras.h"
#include "models/architecture.h"
#include "parallel/state.h"
#include "run/folders/starting_point.h"
#include "run/loop/ramp_lists.h"
#include "scheduler/run_lists.h"
#include "settings/config.h"

namespace trident {

// The place at which a run begins, and what follows from it: the samples of each iteration and the
// lists of actions.
struct RunBegin {
  std::int64_t iteration = 0;            // the first one to run, from 0
  std::int64_t samples = 0, tokens = 0;  // consumed before it
  // Gives each rank the state to begin with, in place of a checkpoint (resumed_from()).
  std::function<void(Context&, State&)> restore;
  std::shared_ptr<const RunLists> lists;  // of the schedule, for all ranks of this process
  BatchSizes batches;                     // from `iteration` on
  std::shared_ptr<RampLists> ramp_lists;  // where the batches grow
};

// Whether training.train_iters follows from train_epochs and the place at which the run begins, and
// the learning rate's schedule as it was asked for before.
struct EpochsToTrain {
  bool asked = false;
  LrSchedulerConfig scheduler = {};
};

// The inputs of a run, checked, that all ranks of a process share: sources are opened once.
struct TrainingInputs {
  Config config;        // train_iters known
  std::string written;  // LoadedConfig::written; "": not known
  std::shared_ptr<const Architecture> architecture;
  Schedule schedule;
  Datasets datasets;
  // The files that are saved with the weights: those of checkpoint.load, and the data's tokenizer.
  // Both sources may be gone by the time of a save.
  HuggingFaceExtras extras;
  StartingPoint start;
  EpochsToTrain epochs;
  RunBegin begin;                     // follows from `start`
  FileSystem* files = &real_files();  // that checkpoints go to

  // Whether a tokenizer goes with the saved weights, if its file is there.
  bool saves_tokenizer() const {
    return !config.data.tokenizer.path.empty() && !config.checkpoint.save.empty();
  }
};

// Opens the data, turns train_epochs into iterations, checks schedule and weights. RequestError
// with all that is wrong. `texts`: what is done about texts that haven't been tokenized, without
// the encoder and the cache, which are the config's; without `writes` nothing is written, and there
// are no datasets where one hasn't been. `on_nodes`: as find_start(); a job of one process finds
// them here.
TrainingInputs prepare_training(const LoadedConfig&, const FoundOnNodes& on_nodes,
                                const TextAccess& texts);
TrainingInputs prepare_training(const LoadedConfig&);
TrainingInputs prepare_training(const Config&);

// What the nodes have kept of the run in checkpoint.save. Collective over the job's processes, of
// which this is `rank`.
FoundOnNodes find_on_nodes(const Config&, int rank, const AskProcesses& ask);

// The inputs of a run that begins at the next checkpoint, after the first of start.checkpoints has
// turned out to be damaged (`why`). RequestError where there is no other one.
TrainingInputs with_next_checkpoint(TrainingInputs, const std::string& why);

// The inputs of a run that begins at iteration k, from 0, with a state: `restore` writes the
// tensors and numbers that Stepper::state() lists beside weights and gradients, and the trainer's
// own numbers: "iteration", which has to be k, and "skipped". A synchronous run then continues as
// if it had never stopped; an asynchronous one fills its pipeline anew.
TrainingInputs resumed_from(TrainingInputs, std::int64_t k,
                            std::function<void(Context&, State&)> restore);

}  // namespace trident
