// What lies in a Hugging Face directory beside the weights and the sizes of the model: ids of
// special tokens, settings of generation, a tokenizer's files. It goes wherever the weights go.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "models/family_files.h"

namespace trident {

struct HuggingFaceExtras {
  std::string config = "{}";                 // keys of config.json, as JSON
  std::map<std::string, std::string> files;  // contents by name
  std::string run_id;                        // of the run that saves; "" where it is none

  // eos_token_id of config.json, where it has none.
  void set_end_of_text(std::int32_t id);
};

// Of a directory whose config.json the architecture reads. A `conversion` writes the same model
// again and keeps all there is; training on keeps the ids of tokens and generation_config.json, as
// the rest follows from the run's config. RequestError for a file that can't be read.
HuggingFaceExtras read_extras(const std::string& directory, const FamilyFiles&, bool conversion);

// The same, for training on, of the contents of such files by name. `path` is for people.
HuggingFaceExtras extras_in(const std::map<std::string, std::string>& files,
                            const std::string& path, const FamilyFiles&);

// A line for people that names the keys of the directory's config.json that transformers doesn't
// know: they change nothing and go along. "" where there are none.
std::string note_of_unread_keys(const std::string& directory, const FamilyFiles&);

// The text of a tokenizer.json, for HuggingFaceExtras::files. RequestError if it can't be read.
std::string read_tokenizer(const std::string& path);

// `config`, a config.json's text, with the extras' keys.
std::string with_extras(const std::string& config, const HuggingFaceExtras&);

}  // namespace trident
