// What other trainers call keys of a config, so that a name one knows from there leads to its place
// here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trident {

struct PeerKey {
  // As the peer has it; where a section makes the difference, with that: "fp16.enabled".
  std::string_view name;
  std::string_view path;       // here, a JSON pointer; "" where there is none
  std::string_view note = {};  // what is otherwise, after the path; all, where that is ""
};

// Of Hugging Face's TrainingArguments and config.json, Megatron-LM's arguments, DeepSpeed's JSON,
// torchtitan's TOML and nanotron's YAML.
const std::vector<PeerKey>& peer_keys();

// The row of a key of `section`, either "" or the name of what holds it; nullptr: there is none.
// Dashes are as underscores, and capitals as small letters.
const PeerKey* find_peer_key(std::string_view section, std::string_view name);

// "here it is /training/train_iters", or what there is in its place.
std::string directions(const PeerKey&);

}  // namespace trident
