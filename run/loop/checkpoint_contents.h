// The contents of a run's checkpoints beside the state: the manifest's numbers, the program and the
// data that made it, and the files of a Hugging Face directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "checkpoint/checkpoint_writer.h"
#include "datasets/interleave.h"
#include "engine/stepper.h"
#include "run/loop/begin_saves.h"
#include "run/loop/report_facts.h"
#include "run/loop/training_inputs.h"

namespace trident {

// The key of made_by() whose value is a hash of the files that data.train leads to; of large files
// a part counts.
inline constexpr const char* training_data_name = "training data";

// The name of the number, in a manifest, of the samples that a source of data.train has given.
std::string consumed_name(std::size_t source);

// The iterations that a checkpoint's state has had.
struct CheckpointProgress {
  std::int64_t iterations = 0;
  std::int64_t skipped = 0;  // the last ones, in a row
  std::optional<double> validation_loss = {};
};

class CheckpointContents {
 public:
  // Inputs and stepper outlive it.
  CheckpointContents(const TrainingInputs&, Stepper&);

  // On rank 0, before the first checkpoint: reads the training data's files. The dependences of the
  // run's numbers beside its config, for people: its layout, threads, data and machine.
  void take_made_by(const ReportFacts&);
  const std::map<std::string, std::string>& made_by() const { return made_by_; }

  // `sequence`: of the checkpoint among those of the run. `on_nodes`: it is one of the nodes'.
  CheckpointInfo of(const CheckpointProgress&, const State&, const BegunSaves&,
                    std::int64_t sequence, bool on_nodes);

 private:
  const TrainingInputs& inputs_;
  Stepper& stepper_;
  std::optional<Interleave> sources_;  // of the training data
  std::map<std::string, std::string> made_by_;
};

}  // namespace trident
