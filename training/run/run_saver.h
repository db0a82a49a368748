// Saves the checkpoints of a run: when one is due, what goes into it beside the state, and which
// older ones go. Before training goes on, or while it does (checkpoint.asynchronous).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "training/checkpoint/background_save.h"
#include "training/checkpoint/checkpoint_writer.h"
#include "training/engine/stepper.h"
#include "training/run/run_reporter.h"
#include "training/run/trainer.h"

namespace trident {

class RunSaver {
 public:
  // All outlive it. `files`: a patient group of the world; saves beside training have one of their
  // own.
  RunSaver(const TrainingInputs&, const TrainerHooks&, Stepper&, const ProcessGroup& files,
           RunReporter&);

  // Before the log files are written. `run_id`: on rank 0, as on_begin gives it. Checkpoints that
  // the run goes back behind, or could not go on from, it sets aside.
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
  // Collective. Of a state that is settled, unless there is a checkpoint of it. Begins one beside
  // training where the config asks for that, after the one before has ended.
  void save(const Progress&);
  // The same, to its end. Whether there is one; why not it has told.
  bool save_last(const Progress&);
  // Tells of a save that has ended meanwhile.
  void look();
  // Collective: waits for the save beside training, if there is one.
  void finish();
  // Not collective, for a rank that has an error to tell: lets a save come to its end before. The
  // others' copies are made without them.
  void finish_alone() noexcept;
  // So many have failed that have ended, as far as this rank has looked.
  std::int64_t failures() const { return failures_; }
  // Milliseconds that training has waited for saves since the last call.
  double take_pause() { return std::exchange(pause_, 0.0); }

 private:
  // A checkpoint that is being written.
  struct Job {
    std::int64_t iterations = 0;
    SaveList list;
    CheckpointInfo info;
    CheckpointPlace place;
    std::vector<std::string> messages;           // of rank 0, for when it has ended
    std::unique_ptr<BackgroundSave> background;  // last: uses the others
  };

  void set_aside_later(const std::vector<FoundCheckpoint>&);
  std::unique_ptr<Job> job_of(const Progress&);
  CheckpointInfo info(const Progress&, State&) const;
  // On the thread that saves. Gives why there is none.
  std::string write(Context&, const ProcessGroup&, Job&, const EachPortion&);
  // Rank 0: `latest`, and which ones go.
  void conclude(Job&) const;
  void begin_beside(const Progress&);
  void ended(const Job&, const std::string& failure);

  const TrainingInputs& inputs_;
  const Config& config_;
  const TrainerHooks& hooks_;
  Stepper& stepper_;
  ProcessGroup files_, beside_;
  RunReporter& reporter_;
  std::string run_id_;
  std::int64_t sequence_ = 0;
  std::int64_t saved_ = -1;  // iterations of the newest
  std::int64_t failures_ = 0;
  double pause_ = 0;
  // Of saves beside training: what they say to each other goes over the host.
  std::unique_ptr<Device> host_;
  std::unique_ptr<Context> host_context_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Job> job_;
};

// What a run's numbers depend on beside its config, for people: its layout, threads and device.
std::map<std::string, std::string> made_by(const TrainingInputs&);

}  // namespace trident
