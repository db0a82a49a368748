// Saves the checkpoints of a run, in checkpoint.save and on the nodes (checkpoint.local): when one
// is due, what goes into it beside the state, and which older ones go. Before training goes on, or
// while it does (checkpoint.asynchronous).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/background_save.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/device_copies.h"
#include "checkpoint/node_checkpoint.h"
#include "engine/stepper.h"
#include "run/loop/begin_saves.h"
#include "run/loop/checkpoint_contents.h"
#include "run/loop/run_reporter.h"
#include "run/loop/save_costs.h"
#include "run/loop/trainer.h"

namespace trident {

class RunSaver {
 public:
  // All outlive it. `files`: a patient group of the world; saves beside training have one of their
  // own.
  RunSaver(const TrainingInputs&, const TrainerHooks&, Stepper&, const Nodes&,
           const ProcessGroup& files, RunReporter&);

  // Collective, before the log files are written. `run_id`: on rank 0, as on_begin gives it.
  // Checkpoints that the run goes back behind, or could not go on from, it sets aside; those on
  // nodes it removes.
  void begin(const std::string& run_id);
  // On rank 0, after begin(): what the run's numbers depend on beside its config, for people: its
  // layout, threads, data and machine.
  const std::map<std::string, std::string>& made_by() const { return contents_.made_by(); }
  // Whether a checkpoint is due after this number of iterations, or asked for.
  bool due(std::int64_t iterations) const;
  // Asks for a checkpoint after the iteration that runs. All ranks call it.
  void ask() { asked_ = true; }
  // On rank 0: whether the file `save-now` is in checkpoint.save, with which a user asks for one.
  bool touched() const;
  // Whether the run has checkpoints: at its end it saves one more.
  bool active() const;

  // Collective. Of a state that is settled, unless there is a checkpoint of it: `asked`, or what
  // is due. Begins one beside training where the config asks for that, after the one before of its
  // kind has ended.
  void save(const CheckpointProgress&);
  // In checkpoint.save, to its end. Whether there is one; why not it has told. Then nothing stays
  // on the nodes.
  bool save_last(const CheckpointProgress&);
  // An iteration has taken so long. Before report_ended().
  void iterated(double seconds);
  // Tells of a save that has ended meanwhile.
  void report_ended();
  // Collective: waits for the save beside training, if there is one.
  void finish();
  // Not collective, for a rank that has an error to tell: lets a save come to its end before. The
  // others' copies are made without them.
  void finish_alone() noexcept;
  // So many have failed that have ended, as far as this rank has looked.
  std::int64_t failures() const { return failures_; }
  // Milliseconds that training has waited for saves since the last call.
  double take_pause() { return std::exchange(pause_, 0.0) * 1e3; }

 private:
  // A checkpoint that is being written.
  struct Job {
    std::int64_t iterations = 0;
    bool on_nodes = false;
    bool apart = false;  // of copies, which nobody changes
    SaveList list;
    CheckpointInfo info;
    CheckpointPlace place;                       // unless it goes to the nodes
    std::vector<std::string> messages;           // of rank 0, for when it has ended
    std::unique_ptr<BackgroundSave> background;  // last: uses the others
  };

  // One of the two kinds, of which one is written at a time each.
  struct Kind {
    std::int64_t interval = 0;
    std::int64_t saved = -1;  // iterations of the newest
    ProcessGroup beside;      // of saves beside training
    std::unique_ptr<Staging> staging;
    DeviceCopies copies;
    SaveCosts costs;
    std::unique_ptr<Job> job;

    bool due(std::int64_t iterations) const { return interval > 0 && iterations % interval == 0; }
  };
  bool on_nodes(const Kind& kind) const { return &kind == &nodes_; }

  // `beside`: of copies in the device's memory, where it has that to spare.
  std::unique_ptr<Job> job_of(Kind&, const CheckpointProgress&, bool beside);
  // On the thread that saves. Gives why there is none.
  std::string write(Context&, const ProcessGroup&, Job&, const EachPortion&);
  // Rank 0: `latest`, and which ones go; on the nodes those who lead them.
  void conclude(Job&) const;
  void save(Kind&, const CheckpointProgress&);
  bool save_now(Kind&, const CheckpointProgress&);
  void begin_async(Kind&, const CheckpointProgress&);
  void finish(Kind&);
  void ended(Kind&, const Job&, const std::string& failure);
  void tell_best_intervals();
  class Waiting;

  const TrainingInputs& inputs_;
  const Config& config_;
  const TrainerHooks& hooks_;
  Stepper& stepper_;
  ProcessGroup files_;
  RunReporter& reporter_;
  CheckpointContents contents_;
  BegunSaves begun_;
  bool asked_ = false;
  std::int64_t sequence_ = 0;  // of the one that was begun last
  std::int64_t failures_ = 0;
  bool told_on_nodes_ = false;           // that this start has saved there; on the thread that does
  double pause_ = 0, pause_inside_ = 0;  // seconds; since it was taken, and within this iteration
  std::unique_ptr<Device> host_;
  NodePlace place_;  // where the nodes have a folder
  Kind durable_, nodes_;
};

}  // namespace trident
