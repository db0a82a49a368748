// Writes the checkpoints of a run: what one contains, into checkpoint.save or onto the nodes, and
// which older ones are removed afterwards. run/loop/run_saver.h decides when one is due, and
// whether training waits for it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/node_checkpoint.h"
#include "engine/stepper.h"
#include "run/loop/checkpoint_contents.h"
#include "run/loop/prepare_saves.h"
#include "run/loop/run_reporter.h"
#include "run/loop/trainer.h"

namespace trident {

// A checkpoint that is being written.
struct CheckpointSave {
  std::int64_t iterations = 0;
  bool on_nodes = false;
  SaveList list;
  CheckpointInfo info;
  CheckpointPlace place;                   // unused for a checkpoint on nodes
  std::vector<std::string> messages = {};  // rank 0 reports them at the end
};

class SaveWriter {
 public:
  // Inputs, hooks and stepper must outlive it. `rank`: the own one in the world.
  SaveWriter(const TrainingInputs&, const TrainerHooks&, Stepper&, const Nodes&, int rank);

  // Calls prepare_saves(). `saves`: whether the run saves checkpoints. Collective over `files`.
  void begin(const ProcessGroup& files, RunReporter&, const std::string& run_id, bool saves);
  // CheckpointContents::made_by(). On rank 0, after begin().
  const std::map<std::string, std::string>& made_by() const { return contents_.made_by(); }

  // The next checkpoint. Each rank makes the same ones. Its list refers to the tensors of `state`,
  // which must outlive its writing.
  CheckpointSave next(const CheckpointProgress&, const State& state, bool on_nodes);
  // Writes it, updates `latest` and removes superfluous checkpoints; on each node, older ones. May
  // run on a thread of its own. Collective over `group`, whose messages go through `context`.
  // Returns the reason of a failure, "" on success.
  std::string write(Context&, const ProcessGroup& group, CheckpointSave&, const EachPortion&);
  // Removes the run's checkpoints on the nodes. Returns a problem, "" for none. Collective.
  std::string leave_nodes(const ProcessGroup&);
  // A context in host memory, for messages of threads besides the training thread.
  Context host_context() const { return {*host_, 1}; }

 private:
  void conclude(CheckpointSave&) const;

  const TrainingInputs& inputs_;
  const TrainerHooks& hooks_;
  Stepper& stepper_;
  CheckpointContents contents_;
  PreparedSaves begun_;
  std::unique_ptr<Device> host_;
  NodePlace place_;                 // the folder on this node
  std::int64_t sequence_ = 0;       // of the checkpoint begun last
  bool recorded_on_nodes_ = false;  // record_on_nodes() was called; used on the saving thread
};

}  // namespace trident
