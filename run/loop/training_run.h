// One rank's run, from initial weights to the saved ones.
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

// Not for several threads. Every function is collective over the transport's world.
class TrainingRun {
 public:
  // All arguments outlive it.
  TrainingRun(const TrainingInputs&, Transport&, Context&, const TrainerHooks&);

  // Trains; once. Error where the run fails, after it has saved and reported all that it can.
  // DamagedCheckpoint, on all ranks, where the checkpoint to begin with can't be read.
  TrainingSummary run();

 private:
  // Takes the first state, and opens the log files. Sets stopped_ where a rank is asked to stop
  // before it has trained.
  void begin();
  // Whether any rank is asked to stop.
  bool stop_of_any();
  void train();
  // These two return false when the run shall stop.
  bool iteration(std::int64_t k);
  bool report(const CompletedIteration&, const StepResult&, bool evaluates);
  // The last checkpoint, then the final weights.
  void save();

  // Whether iteration k is drawn; by default the second one, since the first one makes the buffers.
  bool is_drawn(std::int64_t k) const;
  // The mean loss of each validation set. Breaks off, with stopped_, when a rank is asked to stop.
  std::vector<std::pair<std::string, double>> validate();
  // A step whose loss or gradients are not finite: reports it, or sets failure_.
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
  CheckpointProgress progress_;  // of the state
  bool stopped_ = false;         // by the stop flag of any rank
  std::string failure_;          // why the run ends with an error; the same on all ranks
};

}  // namespace trident
