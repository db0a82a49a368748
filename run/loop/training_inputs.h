// What a run is made of, checked before it begins: config, model, schedule, data, what is saved
// with the weights, and where a run that goes on begins.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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
#include "planner/plan/plan.h"
#include "report/best_rates.h"
#include "run/folders/starting_point.h"
#include "run/loop/ramp_lists.h"
#include "scheduler/run_lists.h"
#include "settings/config.h"

namespace trident {

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
  StartingPoint start;
  bool iterations_follow = false;     // training.train_iters follows from train_epochs and `start`
  LrSchedulerConfig asked_scheduler;  // before it did
  // A run that goes on: its first iteration, from 0, what it has consumed before, and who gives
  // each rank the state that it begins with in place of a checkpoint (go_on_from()).
  std::int64_t first_iteration = 0, consumed_samples = 0, consumed_tokens = 0;
  std::function<void(Context&, State&)> restore;
  BatchSizes batches;                                            // from first_iteration on
  std::shared_ptr<RampLists> ramp_lists;                         // where the batches grow
  std::map<std::string, std::string> made_by;                    // what RunSaver::made_by() adds to
  std::vector<std::pair<std::string, std::string>> start_facts;  // for the report
  FileSystem* files = &real_files();                             // that checkpoints go to
  JobRate rate;                                                  // for MFU; of no machine: unknown

  // A tokenizer goes along with the saved weights, if its file is there.
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

// Where start.checkpoints has one, the run begins there; else with what else `start` names.
void begin_at_start(TrainingInputs&);

// Where the first of start.checkpoints has turned out to be damaged, `why`: the next one comes in
// its place. RequestError where there is none.
void begin_at_next(TrainingInputs&, const std::string& why);

// Lets the run begin at iteration k, from 0, with a state: `restore` writes what Stepper::state()
// lists beside weights and gradients, and the trainer's own numbers: "iteration", which has to be
// k, and "skipped". A synchronous run then goes on as if it had never stopped; an asynchronous one
// fills its pipeline anew.
void go_on_from(TrainingInputs&, std::int64_t k, std::function<void(Context&, State&)> restore);

}  // namespace trident
