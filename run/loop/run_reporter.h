// The output of a run: lines for people, the metrics of each iteration, log files, and the report
// at its end. World rank 0 writes all of it; on other ranks the calls do nothing. No call is
// collective.
#pragma once

#include <memory>
#include <string>

#include "engine/monitor.h"
#include "parallel/process_group.h"
#include "report/log_writer.h"
#include "run/loop/idle_experts.h"
#include "run/loop/trainer.h"

namespace trident {

// An iteration that has run. Its StepResult, which all ranks agree on, may follow later.
struct CompletedIteration {
  std::int64_t k = 0;  // from 0
  double learning_rate = 0, seconds = 0;
  std::int64_t weight_version = 0;
  double save_pause_ms = 0;       // since the iteration before
  std::int64_t failed_saves = 0;  // since the start
};

class RunReporter {
 public:
  // Inputs and hooks must outlive it.
  RunReporter(const TrainingInputs&, const ProcessGroup& world, const TrainerHooks&);

  bool leads() const { return world_.rank() == 0; }
  void message(const std::string& text) const;
  // As message(). With TrainerHooks::quiet, drops the line unless it begins with "warning: ".
  void inform(const std::string& text) const;
  // Opens the log files.
  void begin();
  // Reports an iteration. `drawn`: the figures contain timelines.
  void iteration(const CompletedIteration&, const StepResult&, const StepFigures&,
                 const std::vector<std::pair<std::string, double>>& validation_loss, bool drawn);
  // Adds a file or folder that the run has written to the summary.
  void wrote(const std::string& path);
  // Flushes the metrics to the disk while training continues. Call it before a checkpoint that
  // counts these iterations.
  void sync_log();
  // Reports that a part of the logs, `what`, could not be written, and why.
  void failed(const std::string& what, const std::string& why);
  // Writes the report of the iterations that have run and closes the files.
  void end();
  // Returns the summary, except `stopped`. Call it once, at the end.
  TrainingSummary take_summary() { return std::move(summary_); }

 private:
  IterationMetrics metrics_of(const CompletedIteration&, const StepResult&, const StepFigures&);
  void draw(std::int64_t k, const StepFigures&);
  void pass_messages_on();

  const TrainingInputs& inputs_;
  const Config& config_;
  const TrainerHooks& hooks_;
  ProcessGroup world_;
  double flops_;                    // of a step of the largest batch
  std::unique_ptr<LogWriter> log_;  // on rank 0, after begin()
  IdleExperts idle_experts_;
  TrainingSummary summary_;
};

}  // namespace trident
