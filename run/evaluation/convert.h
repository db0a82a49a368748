// Rewrites a directory of weights: reads every tensor, checks it against config.json, writes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "models/architecture.h"

namespace trident {

// Every bit of the weights stays, and so does what lies beside them (hugging_face_extras.h).
// RequestError, and nothing is written, where `from` is no Hugging Face directory of a known
// architecture whose files fit its config, where `to` holds a model already and isn't to be
// overwritten, is the same directory, or can't be written. Gives a note of what stays there of some
// other tokenizer, or "".
std::string convert_weights(const ArchitectureSet&, const std::string& from, const std::string& to,
                            bool overwrite = false);

// Copies a checkpoint's weights to the directory `to`, with the same rules; a run may go on
// meanwhile.
std::string export_checkpoint(const FoundCheckpoint& checkpoint, const std::string& to,
                              bool overwrite);

struct Pruned {
  std::vector<std::int64_t> removed;  // iterations
  std::vector<std::string> damaged;   // what is wrong with others, which neither count nor go
};
// Removes what doesn't stay of a run's checkpoints, unless `dry_run`. Reads all of those that stay:
// one that is damaged is no reason for another to go. RequestError where a run has the folder.
Pruned prune_checkpoints(const std::string& save, const Retention& rules, bool dry_run);

}  // namespace trident
