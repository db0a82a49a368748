// What a run tells: lines for people, the metrics of each iteration, log files, and the report at
// its end. All of it happens on world rank 0; on the others nothing does.
#pragma once

#include <memory>
#include <string>

#include "engine/monitor.h"
#include "parallel/process_group.h"
#include "report/log_writer.h"
#include "run/loop/trainer.h"

namespace trident {

// An iteration that has run; what all ranks found of it may come later.
struct CompletedIteration {
  std::int64_t k = 0;  // from 0
  double learning_rate = 0, seconds = 0;
  std::int64_t weight_version = 0;
  double save_pause_ms = 0;       // since the one before
  std::int64_t failed_saves = 0;  // in all
};

class RunReporter {
 public:
  // Inputs and hooks outlive it.
  RunReporter(const TrainingInputs&, const ProcessGroup& world, const TrainerHooks&);

  bool leads() const { return world_.rank() == 0; }
  void message(const std::string& text) const;
  // Of what goes as it should, unless it begins with "warning: ".
  void inform(const std::string& text) const;
  // Opens the log files.
  void begin();
  // `drawn`: the figures have timelines.
  void iteration(const CompletedIteration&, const StepResult&, const StepFigures&,
                 const std::vector<std::pair<std::string, double>>& validation_loss, bool drawn);
  // A file or folder of the run has been written.
  void wrote(const std::string& path);
  // What a part of the logs could not be written for.
  // To the disk, beside training: before a checkpoint that counts these iterations.
  void sync_log();
  void failed(const std::string& what, const std::string& why);
  // Writes the report of what has run, closes the files.
  void end();
  // What was told, but for `stopped`. Once, at the end.
  TrainingSummary take_summary() { return std::move(summary_); }

 private:
  IterationMetrics metrics_of(const CompletedIteration&, const StepResult&, const StepFigures&);
  void draw(std::int64_t k, const StepFigures&);
  void pass_messages_on();

  const TrainingInputs& inputs_;
  const Config& config_;
  const TrainerHooks& hooks_;
  ProcessGroup world_;
  double flops_;                    // of a step
  std::unique_ptr<LogWriter> log_;  // on rank 0, after begin()
  TrainingSummary summary_;
};

}  // namespace trident
