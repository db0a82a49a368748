// The tokenizer that a config names.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "datasets/document_encoder.h"
#include "settings/config.h"

namespace trident {

// The file that data.tokenizer.path names: itself, or the tokenizer.json in that folder.
std::string tokenizer_file(const TokenizerConfig&);

// Reads it. RequestError "config: /data/tokenizer/…" where it can't be read, and where documents
// are to be followed by an end of text that it hasn't.
DocumentEncoder document_encoder_of(const Config&);
// The same when it is asked for first, once. The config outlives it.
std::function<DocumentEncoder()> document_encoder_when_asked(const Config&);

// What saved weights need for transformers to use the tokenizer: tokenizer.json, and the
// tokenizer_config.json and generation_config.json that lie beside it, or such as say which token
// ends a text; of bytes, which have no such token, byte_tokenizer(). By name; RequestError where a
// file can't be read. A tokenizer that this program doesn't know goes along as it is.
struct TokenizerFiles {
  std::map<std::string, std::string> texts;
  std::optional<std::int32_t> end_of_text;
};
TokenizerFiles tokenizer_files(const Config&);

// The tokenizer.json of type "byte": each byte has its number as its id. Where the tokens are
// known to be bytes by it, they needn't be UTF-8.
const std::string& byte_tokenizer();
// Whether it lies in the directory.
bool has_byte_tokenizer(const std::string& directory);

// The token that ends a text: `eos_token`, if given; else what `tokenizer_config` (a
// tokenizer_config.json, or "") says, else one of the usual names. nullopt where there is none of
// that name, or no usual one.
std::optional<std::int32_t> end_of_text(const Tokenizer&, const std::string& eos_token,
                                        const std::string& tokenizer_config);

// The tokens that end what the model in a Hugging Face directory writes: those of its
// generation_config.json, else of its config.json, else the tokenizer's own (may be null). As in
// transformers, a generation_config.json that names none says that nothing ends it; `look_on` looks
// in the others then, too, for a form that has to name one.
std::vector<std::int32_t> end_tokens(const std::string& directory, const Tokenizer* tokenizer,
                                     bool look_on = false);
// A token's id in such a file; nullopt where the value is none.
std::optional<std::int32_t> token_id(const nlohmann::json& value);

}  // namespace trident
