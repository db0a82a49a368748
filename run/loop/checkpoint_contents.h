// The contents of a run's checkpoints other than the state: the numbers in the manifest, the
// program and the data that made it, and the files of a Hugging Face directory. One object per
// rank; no call is collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "checkpoint/checkpoint_writer.h"
#include "datasets/interleave.h"
#include "engine/stepper.h"
#include "run/loop/prepare_saves.h"
#include "run/loop/report_facts.h"
#include "run/loop/training_inputs.h"

namespace trident {

// The key of made_by() whose value is a hash of the files that data.train names, of large files
// of a part of them (training_data_hash()).
inline constexpr const char* training_data_name = "training data";

// The manifest's name for the number of samples that a source of data.train has given.
std::string consumed_name(std::size_t source);

// The progress of the state in a checkpoint.
struct CheckpointProgress {
  std::int64_t iterations = 0;
  std::int64_t skipped = 0;  // the number of steps skipped in a row up to now
  std::optional<double> validation_loss = {};
};

class CheckpointContents {
 public:
  // Inputs and stepper must outlive it.
  CheckpointContents(const TrainingInputs&, Stepper&);

  // Call it on rank 0 before the first checkpoint; it reads the training data's files. made_by()
  // then lists the dependences of the run's numbers besides its config: layout, threads, data and
  // machine.
  void take_made_by(const ReportFacts&);
  const std::map<std::string, std::string>& made_by() const { return made_by_; }

  // `sequence`: the checkpoint's number within the run. `on_nodes`: the nodes store it.
  CheckpointInfo of(const CheckpointProgress&, const State&, const PreparedSaves&,
                    std::int64_t sequence, bool on_nodes);

 private:
  const TrainingInputs& inputs_;
  Stepper& stepper_;
  std::optional<Interleave> sources_;  // the training data's
  std::map<std::string, std::string> made_by_;
};

}  // namespace trident
