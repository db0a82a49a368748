// One rank's run, from its first state to the saved weights.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/context.h"
#include "engine/evaluator.h"
#include "engine/monitor.h"
#include "engine/rank_model.h"
#include "engine/stepper.h"
#include "parallel/process_group.h"
#include "parallel/topology.h"
#include "parallel/transport/transport.h"
#include "run/loop/run_data.h"
#include "run/loop/run_reporter.h"
#include "run/loop/run_saver.h"
#include "run/loop/trainer.h"

namespace trident {

// One thread calls it. Every function is collective over the transport's world.
class TrainingRun {
 public:
  // All arguments must outlive it.
  TrainingRun(const TrainingInputs&, Transport&, Context&, const TrainerHooks&);

  // Trains. Call it once. Throws Error if the run fails, after it has saved and reported all that
  // it can. Throws DamagedCheckpoint, on all ranks, if the checkpoint to begin with is damaged.
  TrainingSummary run();

 private:
  // Takes the first state and opens the log files. Sets stopped_ if a rank is asked to stop before
  // it has trained.
  void begin();
  // Whether any rank is asked to stop.
  bool stop_of_any();
  void train();
  // These two return false if the run must stop.
  bool iteration(std::int64_t k);
  bool report(const CompletedIteration&, const StepResult&, bool evaluates);
  // Saves the last checkpoint, then the final weights.
  void save();

  // Whether iteration k is drawn; by default the second one, since the first one allocates buffers.
  bool is_drawn(std::int64_t k) const;
  // The mean loss of each validation set. Sets stopped_ and ends early if a rank is asked to stop.
  std::vector<std::pair<std::string, double>> validate();
  // Reports a step whose loss or gradients are not finite, or sets failure_.
  void report_skipped(std::int64_t k, const StepResult&);
  void dump_gradients(std::int64_t k);

  const TrainingInputs& inputs_;
  const TrainerHooks& hooks_;
  Context& context_;
  ProcessGroup world_;
  ProcessGroup files_;  // without time-out: ranks wait here for each other's files
  Topology topology_;
  RankModel model_;
  Stepper stepper_;
  Evaluator evaluator_;
  Monitor monitor_;
  RunReporter reporter_;
  RunSaver saver_;
  RunData data_;
  HuggingFaceExtras extras_;
  CompletedIteration last_;
  CheckpointProgress progress_;  // the state's
  bool stopped_ = false;         // by the stop flag of any rank
  std::string failure_;          // why the run ends with an error; the same on all ranks
};

}  // namespace trident
