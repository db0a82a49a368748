// The starting point of a run: a checkpoint of its own, a checkpoint that checkpoint.load names,
// the weights of a Hugging Face directory, or initial weights.
//
// Every process of a job finds it on its own; none of these functions is collective. Problems of
// the request are RequestErrors.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/found_on_nodes.h"
#include "checkpoint/starts.h"
#include "checkpoint/taken_parts.h"
#include "settings/config.h"

namespace trident {

struct StartingPoint {
  // Checkpoints to resume from: the first one, or the next one if its files turn out to be damaged.
  std::vector<FoundCheckpoint> checkpoints;
  bool again = false;   // the run died before its first checkpoint: it begins again, with new logs
  bool own = false;     // they are the run's own, in checkpoint.save or on its nodes
  TakenParts taken;     // the parts of the checkpoint that the run loads
  std::string weights;  // the Hugging Face directory, if there is no checkpoint; "": none
  std::string bf16_products;  // runtime.bf16_products of the first checkpoint's run; "": unknown
  // The checkpoints in checkpoint.save at the time of the search; empty without a search.
  std::optional<std::vector<std::string>> listing;
  std::optional<std::vector<std::string>> listing_on_node;  // the same on this process's node
  std::shared_ptr<StartLock> hold;                          // FoundOnNodes::hold
  std::vector<std::string> messages;                        // lines for people
};

// Whether the config lets a run resume from checkpoints on nodes.
bool looks_on_nodes(const CheckpointConfig&);

// The run in checkpoint.save and its starts, for the search for its checkpoints on nodes. Empty if
// looks_on_nodes() is false.
Starts starts_on_nodes(const CheckpointConfig&);

// The id of the run that resumes; "" for a new run.
std::string run_of(const StartingPoint& start);

// A run can't resume from a checkpoint, because its files are damaged. Any rank may find that.
class DamagedCheckpoint : public RequestError {
 public:
  using RequestError::RequestError;
};

// Finds the starting point that the config asks for. Throws RequestError if it does not exist.
// `on_nodes`: the checkpoints of the run in checkpoint.save that the nodes have kept.
StartingPoint find_start(const CheckpointConfig&, const std::string& log_dir,
                         const FoundOnNodes& on_nodes = {});

// Throws RequestError if checkpoint.save holds other checkpoints than find_start() has found: a run
// has come and gone since. The caller holds the lock of the folder.
void require_unchanged(const StartingPoint& start, const CheckpointConfig&);

// Adds a message for each difference between `config` and the config of the first checkpoint.
// Throws DamagedCheckpoint if that config can't be read, RequestError if the checkpoint is of
// another model.
void compare_configs(StartingPoint& start, const Config& config);

// Replaces the first checkpoint, which has turned out to be damaged (`why`), by the next one.
// Throws RequestError if there is none.
void fall_back(StartingPoint& start, const std::string& load, const std::string& why);

}  // namespace trident
