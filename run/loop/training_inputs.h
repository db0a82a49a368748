// The inputs of a run, checked before it begins: config, model, schedule, data, the files that are
// saved with the weights, and the starting point. Each process prepares them once, and its ranks
// share them. Only find_on_nodes() is collective.
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

// The iteration at which a run begins, and the values derived from it: the samples of each
// iteration and the lists of actions.
struct RunBegin {
  std::int64_t iteration = 0;            // the first one to run, from 0
  std::int64_t samples = 0, tokens = 0;  // consumed before it
  // Writes each rank's initial state, instead of a checkpoint (resumed_from()).
  std::function<void(Context&, State&)> restore;
  std::shared_ptr<const RunLists> lists;  // of actions, for all ranks of this process
  BatchSizes batches;                     // from `iteration` on
  std::shared_ptr<RampLists> ramp_lists;  // null if the batch size is constant
};

// Whether training.train_iters is derived from train_epochs and the starting point, and the
// learning rate's schedule in the config before that.
struct EpochsToTrain {
  bool asked = false;
  LrSchedulerConfig scheduler = {};
};

// The checked inputs of a run. All ranks of a process share them, so each source is opened once.
struct TrainingInputs {
  Config config;        // with train_iters set
  std::string written;  // LoadedConfig::written; "": unknown
  std::shared_ptr<const Architecture> architecture;
  Schedule schedule;
  Datasets datasets;
  // The files that are saved with the weights: the files of checkpoint.load, and the data's
  // tokenizer. They are kept here, since both sources may be gone by the time of a save.
  HuggingFaceExtras extras;
  StartingPoint start;
  EpochsToTrain epochs;
  RunBegin begin;                     // derived from `start`
  FileSystem* files = &real_files();  // where checkpoints are written

  // Whether a tokenizer is saved with the weights, if its file exists.
  bool saves_tokenizer() const {
    return !config.data.tokenizer.path.empty() && !config.checkpoint.save.empty();
  }
};

// Opens the data, turns train_epochs into iterations, checks schedule and weights. Throws
// RequestError with all problems. `texts` states how to tokenize texts; its encoder and cache are
// taken from the config. Without `texts.writes` nothing is written, and there are no datasets if a
// text hasn't been tokenized yet. `on_nodes`: as in find_start(); the overloads without it serve a
// job of one process and search the nodes themselves.
TrainingInputs prepare_training(const LoadedConfig&, const FoundOnNodes& on_nodes,
                                const TextAccess& texts);
TrainingInputs prepare_training(const LoadedConfig&);
TrainingInputs prepare_training(const Config&);

// Finds the checkpoints that the nodes have kept of the run in checkpoint.save. `rank` is this
// process's. Collective over the job's processes.
FoundOnNodes find_on_nodes(const CheckpointConfig&, int rank, const AskProcesses& ask);

// Returns the inputs of a run that begins at the next checkpoint, after the first of
// start.checkpoints has turned out to be damaged (`why`). Throws RequestError if there is no other
// checkpoint.
TrainingInputs with_next_checkpoint(TrainingInputs, const std::string& why);

// Returns the inputs of a run that begins at iteration k, from 0, with a given state. `restore`
// writes the tensors and numbers that Stepper::state() lists, except weights and gradients, and the
// trainer's own numbers: "iteration", which must be k, and "skipped". A synchronous run then
// continues as if it had never stopped; an asynchronous one begins with an empty pipeline.
TrainingInputs resumed_from(TrainingInputs, std::int64_t k,
                            std::function<void(Context&, State&)> restore);

}  // namespace trident
