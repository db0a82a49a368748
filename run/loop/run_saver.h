// Saves the checkpoints of a run, in checkpoint.save and on the nodes (checkpoint.local). It
// decides when one is due. Training waits for a save, or continues meanwhile
// (checkpoint.asynchronous). run/loop/save_writer.h writes them.
//
// Each rank has one, and its training thread calls it; functions are collective over the world
// where stated. A save that fails is reported and doesn't end the run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/background_save.h"
#include "checkpoint/device_copies.h"
#include "engine/stepper.h"
#include "run/loop/run_reporter.h"
#include "run/loop/save_costs.h"
#include "run/loop/save_writer.h"
#include "run/loop/trainer.h"

namespace trident {

class RunSaver {
 public:
  // Inputs, hooks, stepper and reporter must outlive it. `files`: a group of the world without
  // time-out. Asynchronous saves use duplicates of it.
  RunSaver(const TrainingInputs&, const TrainerHooks&, Stepper&, const Nodes&,
           const ProcessGroup& files, RunReporter&);

  // Calls prepare_saves(), which quarantines or removes checkpoints that are damaged or later than
  // the starting point. Collective, before the log files are written. `run_id` is read on rank 0.
  void begin(const std::string& run_id);
  // The dependences of the run's numbers besides its config, for people: layout, threads, data and
  // machine. On rank 0, after begin().
  const std::map<std::string, std::string>& made_by() const { return writer_.made_by(); }
  // Whether a checkpoint is due after this number of iterations, or was requested by ask().
  bool due(std::int64_t iterations) const;
  // Requests a checkpoint after the current iteration. All ranks call it.
  void ask() { asked_ = true; }
  // On rank 0, whether checkpoint.save contains the file `save-now`, by which a user requests a
  // checkpoint; false on other ranks.
  bool touched() const;
  // Whether the run saves checkpoints. If so, it saves one more at its end.
  bool active() const;

  // Saves the requested or due checkpoint, unless the state is saved already. Call it after the
  // step's result is known. With checkpoint.asynchronous it waits for the previous save of the same
  // kind and begins a new one. Collective.
  void save(const CheckpointProgress&);
  // Saves the last checkpoint in checkpoint.save and waits for its end. On success it removes the
  // checkpoints on the nodes and returns true; on failure it reports the reason. Collective.
  bool save_last(const CheckpointProgress&);
  // An iteration has taken `seconds`. Call it before report_ended().
  void iterated(double seconds);
  // Reports asynchronous saves that have ended.
  void report_ended();
  // Waits for asynchronous saves, if there are any. Collective.
  void finish();
  // Waits for asynchronous saves on a rank that ends with an error. Not collective: the other ranks
  // copy their parts of the state without it.
  void finish_alone() noexcept;
  // The number of failed saves that this rank knows of.
  std::int64_t failures() const { return failures_; }
  // Milliseconds that training has waited for saves since the last call.
  double take_pause() { return std::exchange(pause_, 0.0) * 1e3; }

 private:
  // A checkpoint that is written while training continues.
  struct Job {
    CheckpointSave save;
    std::unique_ptr<BackgroundSave> background;  // last: it uses the other
  };

  // One of the two series of checkpoints. At most one checkpoint of each is being written.
  struct Series {
    std::int64_t interval = 0;
    std::int64_t saved = -1;    // iterations of the newest one
    ProcessGroup asynchronous;  // for asynchronous saves
    std::unique_ptr<Staging> staging;
    DeviceCopies copies;
    SaveCosts costs;
    std::unique_ptr<Job> job;

    bool due(std::int64_t iterations) const { return interval > 0 && iterations % interval == 0; }
  };
  bool on_nodes(const Series& series) const { return &series == &nodes_; }

  // The series' next checkpoint. Removes the file by which a user requested it.
  CheckpointSave next(const Series&, const CheckpointProgress&, const State&);
  void save(Series&, const CheckpointProgress&);
  bool save_now(Series&, const CheckpointProgress&);
  void begin_async(Series&, const CheckpointProgress&);
  void finish(Series&);
  void ended(Series&, const CheckpointSave&, const std::string& failure);
  void report_best_intervals();
  class Waiting;

  const TrainingInputs& inputs_;
  const CheckpointConfig& config_;
  Stepper& stepper_;
  ProcessGroup files_;
  RunReporter& reporter_;
  SaveWriter writer_;
  bool asked_ = false;
  std::int64_t failures_ = 0;
  double pause_ = 0, pause_inside_ = 0;  // seconds, since take_pause() and within this iteration
  Series durable_, nodes_;
};

}  // namespace trident
