// Where a run begins: at a checkpoint of its own, at one that checkpoint.load names, with the
// weights of a Hugging Face directory, or with initial weights.
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
  // Checkpoints to go on from: the first, or where its files turn out to be damaged, the next.
  std::vector<FoundCheckpoint> checkpoints;
  bool again = false;   // the run has died before its first checkpoint: it and its logs begin anew
  bool own = false;     // they are checkpoint.save's: the run is the one that has saved them
  TakenParts taken;     // of the checkpoint
  std::string weights;  // else the Hugging Face directory, "" where there is none
  std::string bf16_products;  // runtime.bf16_products of the first checkpoint's run; "": none
  // What lay in checkpoint.save when this was found; nothing where nobody has looked.
  std::optional<std::vector<std::string>> listing;
  std::optional<std::vector<std::string>> listing_on_node;  // and on this process's node
  std::shared_ptr<StartHold> hold;                          // FoundOnNodes::hold
  std::vector<std::string> messages;  // what there is to say of that, for people
};

// Whether the config lets a run go on from checkpoints on nodes.
bool looks_on_nodes(const CheckpointConfig&);

// The run whose checkpoints on nodes could be gone on from, as checkpoint.save says, and its
// starts; of none where the config doesn't ask for them.
Starts starts_on_nodes(const CheckpointConfig&);

// Of the run that goes on; "" where it is a new one.
std::string run_of(const StartingPoint& start);

// A checkpoint can't be gone on from, whatever rank has found that.
class DamagedCheckpoint : public RequestError {
 public:
  using RequestError::RequestError;
};

// What `config` asks for, by what lies there. RequestError where that isn't there.
// `on_nodes`: what the nodes have kept of the run in checkpoint.save.
StartingPoint find_start(const Config& config, const FoundOnNodes& on_nodes = {});

// RequestError where other checkpoints lie in checkpoint.save than find_start() has found: a run
// has come and gone since. For whoever has locked it.
void require_unchanged(const StartingPoint& start, const Config& config);

// Says what the first checkpoint's run did otherwise. DamagedCheckpoint where that can't be read,
// RequestError where the checkpoint is of another model.
void compare_configs(StartingPoint& start, const Config& config);

// For a run whose first checkpoint has turned out to be damaged, `why`: the next one comes in its
// place. RequestError where there is none.
void fall_back(StartingPoint& start, const std::string& load, const std::string& why);

}  // namespace trident
