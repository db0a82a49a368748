// One rank's run, from initial weights to the saved ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/context.h"
#include "datasets/batch_sampler.h"
#include "datasets/read_ahead.h"
#include "engine/evaluator.h"
#include "engine/monitor.h"
#include "engine/rank_model.h"
#include "engine/stepper.h"
#include "parallel/process_group.h"
#include "parallel/topology.h"
#include "parallel/transport/transport.h"
#include "run/loop/run_reporter.h"
#include "run/loop/run_saver.h"
#include "run/loop/trainer.h"

namespace trident {

class TrainingRun {
 public:
  // All of these outlive it. Collective over the transport's world.
  TrainingRun(const TrainingInputs&, Transport&, Context&, const TrainerHooks&);

  // Once. Error where the run fails, after what there is has been saved and reported.
  TrainingSummary run();

 private:
  // Weights and log files. DamagedCheckpoint on all ranks where the one to begin with is of no use.
  // Sets stopped_ where a rank is asked to stop before it has trained.
  void begin();
  void take_weights();
  void restore();
  void restore_checkpoint();
  // Says where the run goes on, and what will be otherwise.
  void announce();
  // Whether a rank is asked to stop; all come to know it.
  bool stop_of_any();
  void train();
  // These two return false when the run shall stop.
  bool iteration(std::int64_t k);
  bool report(const CompletedIteration&, const StepResult&, bool evaluates);
  // After iteration k of a settled state, if one is due or asked for.
  void save_checkpoint();
  // The final weights; the last checkpoint before.
  void save();

  // The second iteration is: the first one still makes its buffers.
  bool is_drawn(std::int64_t k) const;
  std::vector<HostMicroBatch> batches(BatchSampler&, std::int64_t iteration);
  // Those of iteration k, and of later ones what an asynchronous schedule begins in it.
  std::vector<HostMicroBatch> training_batches(std::int64_t k);
  // On ahead_'s thread.
  std::vector<HostMicroBatch> read_training_batches(std::int64_t k, std::int64_t count);
  // Breaks off, with stopped_, when a rank is asked to stop.
  std::vector<std::pair<std::string, double>> validate();
  // Of a step whose loss or gradients are not finite: says so, or sets failure_.
  void look_at_skipped(std::int64_t k, const StepResult&);
  void dump_gradients(std::int64_t k);

  const TrainingInputs& inputs_;
  const Config& config_;
  const TrainerHooks& hooks_;
  Context& context_;
  ProcessGroup world_;
  ProcessGroup files_;  // patient: whoever waits for files waits here
  Topology topology_;
  RankModel model_;
  Stepper stepper_;
  Evaluator evaluator_;
  Monitor monitor_;
  RunReporter reporter_;
  RunSaver saver_;
  BatchSampler train_;
  ReadAhead ahead_;  // of train_
  std::vector<std::pair<std::string, BatchSampler>> validation_;
  HuggingFaceExtras extras_;
  CompletedIteration last_;
  std::int64_t next_ = 0;                  // iteration, from 0: where the data goes on, too
  std::int64_t done_ = 0;                  // iterations that the state has had
  double reading_seconds_ = 0;             // of the checkpoint that it goes on from
  std::int64_t skipped_ = 0;               // steps in a row, but for those that lower a loss scale
  bool stopped_ = false;                   // by the stop flag of any rank
  bool save_asked_ = false;                // a checkpoint, by any rank
  std::optional<double> validation_loss_;  // after done_ iterations
  std::string failure_;                    // why the run ends with an error; the same on all ranks
};

}  // namespace trident
