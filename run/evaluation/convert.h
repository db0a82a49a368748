// Copies weights: converts a directory of weights, exports a checkpoint, and prunes a run's
// checkpoints. Each function works in the calling process alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "models/architecture.h"

namespace trident {

// Reads every tensor in `from`, checks it against config.json, and writes it to `to`. The weights
// stay bitwise identical; the files beside them are copied
// (formats/hugging_face/hugging_face_extras.h). RequestError, with nothing written, where `from` is
// not a Hugging Face directory of a known architecture whose files fit its config; where `to` holds
// a model and `overwrite` is false; or where `to` is the same directory or can't be written.
// Returns notes about files of another tokenizer that stay in `to` and about keys not read, or "".
std::string convert_weights(const ArchitectureSet&, const std::string& from, const std::string& to,
                            bool overwrite = false);

// Copies a checkpoint's weights to the directory `to`, with the same requirements for `to`. The run
// may continue training meanwhile.
std::string export_checkpoint(const FoundCheckpoint& checkpoint, const std::string& to,
                              bool overwrite);

struct Pruned {
  std::vector<std::int64_t> removed;  // iterations
  std::vector<std::string>
      damaged;  // problems of damaged checkpoints, which neither count nor are removed
};
// Removes the checkpoints of a run that `retention` doesn't keep; with `dry_run` only lists them.
// Reads every checkpoint that stays completely, so that a damaged one doesn't count towards the
// limit. RequestError where a run holds the folder.
Pruned prune_checkpoints(const std::string& save, const Retention& retention, bool dry_run);

}  // namespace trident
