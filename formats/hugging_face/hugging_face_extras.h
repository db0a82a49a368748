// The contents of a Hugging Face directory other than the weights and the sizes of the model: ids
// of special tokens, settings of generation, a tokenizer's files. They are copied wherever the
// weights are saved.
//
// Any thread may call these functions; they are not collective.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "models/family_formats.h"

namespace trident {

struct HuggingFaceExtras {
  std::string config = "{}";                 // keys of config.json, as JSON
  std::map<std::string, std::string> files;  // contents by name
  std::string run_id;                        // of the run that saves; "" if no run does

  // Sets eos_token_id of config.json if it has none.
  void set_end_of_text(std::int32_t id);
};

// Reads the extras of a directory whose config.json is of this family. A `conversion` writes the
// same model again and keeps all extras. Training keeps the ids of tokens and
// generation_config.json; the other extras then follow from the run's config. Throws RequestError
// if a file can't be read.
HuggingFaceExtras read_extras(const std::string& directory, const FamilyFormats&, bool conversion);

// The same for training, from the contents of such files by name. `path` is used in messages.
HuggingFaceExtras extras_in(const std::map<std::string, std::string>& files,
                            const std::string& path, const FamilyFormats&);

// A note for people on the directory: the keys of its config.json that transformers doesn't know,
// which have no effect and are kept, and layers that predict further tokens beyond the first
// `mtp_layers`, which are left out. "" if there are none.
std::string notes_of(const std::string& directory, const FamilyFormats&,
                     std::int64_t mtp_layers = 0);

// The text of a tokenizer.json, for HuggingFaceExtras::files. Throws RequestError if it can't be
// read.
std::string read_tokenizer(const std::string& path);

// `config`, the text of a config.json, with the extras' keys set.
std::string with_extras(const std::string& config, const HuggingFaceExtras&);

}  // namespace trident
