// Saves the checkpoints of a run: when one is due, what goes into it beside the state, and which
// older ones go.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/checkpoint_writer.h"
#include "training/engine/stepper.h"
#include "training/run/run_reporter.h"
#include "training/run/trainer.h"

namespace trident {

class RunSaver {
 public:
  // All outlive it. `files`: a patient group of the world.
  RunSaver(const TrainingInputs&, const TrainerHooks&, Stepper&, const ProcessGroup& files,
           RunReporter&);

  // After the log files are there. `run_id`: on rank 0, as on_begin gives it.
  void begin(const std::string& run_id);
  // Whether a checkpoint is due after so many iterations.
  bool due(std::int64_t iterations) const;
  // Whether somebody has touched the file `save-now` in checkpoint.save. Rank 0 looks.
  bool asked() const;
  // Whether the run has checkpoints: at its end it saves one more.
  bool active() const;

  // What a checkpoint is of.
  struct Progress {
    std::int64_t iterations = 0;  // done
    std::int64_t skipped = 0;     // in a row
    std::optional<double> validation_loss;
  };
  // Collective. Of a state that is settled, unless there is a checkpoint of it. Whether that is on
  // the disk; why not it has told.
  bool save(const Progress&);
  // So many have failed.
  std::int64_t failures() const { return failures_; }
  // Milliseconds that training has waited for saves since the last call.
  double take_pause() { return std::exchange(pause_, 0.0); }

 private:
  CheckpointInfo info(const Progress&, State&) const;
  std::string write(const Progress&);
  // Rank 0: `latest`, and which ones go. What fails is told.
  void conclude(std::int64_t iterations);

  const TrainingInputs& inputs_;
  const Config& config_;
  const TrainerHooks& hooks_;
  Stepper& stepper_;
  ProcessGroup files_;
  RunReporter& reporter_;
  std::string run_id_;
  std::int64_t sequence_ = 0;
  std::int64_t saved_ = -1;  // iterations of the newest
  std::int64_t failures_ = 0;
  double pause_ = 0;
};

// What a run's numbers depend on beside its config, for people: its layout, threads and device.
std::map<std::string, std::string> made_by(const TrainingInputs&);

}  // namespace trident
