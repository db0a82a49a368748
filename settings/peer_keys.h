// The names of config keys in other trainers. For an unknown key the error message uses them to
// name the key of this config. The functions are pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trident {

struct PeerKey {
  // The peer's name, with its section where the name alone is ambiguous: "fp16.enabled".
  std::string_view name;
  std::string_view path;       // JSON pointer of the key of this config; "" where there is none
  std::string_view note = {};  // the difference, shown after the path; the full text if path is ""
};

// The keys of Hugging Face's TrainingArguments and config.json, Megatron-LM's arguments,
// DeepSpeed's JSON, torchtitan's TOML and nanotron's YAML.
const std::vector<PeerKey>& peer_keys();

// The row of the key `name` in `section`, which is "" or the name of the enclosing object; nullptr
// if there is none. Dashes match underscores, and capitals match small letters.
const PeerKey* find_peer_key(std::string_view section, std::string_view name);

// "here it is /training/train_iters", or the row's note where it has no path.
std::string directions(const PeerKey&);

}  // namespace trident
