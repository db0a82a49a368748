// The tokenizer of a config, and the files that go with it.
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

// The path in data.tokenizer.path, or the tokenizer.json in it if it is a folder.
std::string tokenizer_file(const TokenizerConfig&);

// Reads the tokenizer. Throws RequestError "config: /data/tokenizer/…" if it can't be read, or if
// documents need an end-of-text token that the tokenizer doesn't have.
DocumentEncoder document_encoder_of(const DataConfig&);
// As above, but reads the tokenizer once, at the first call. The config must outlive the function.
std::function<DocumentEncoder()> document_encoder_when_asked(const DataConfig&);

// The files that transformers needs to use the tokenizer with saved weights, by name:
// tokenizer.json, tokenizer_config.json and generation_config.json. The latter two are copied from
// the tokenizer's folder, or made to name the end-of-text token. For bytes, which have no such
// token, tokenizer.json is byte_tokenizer(). Throws RequestError if a file can't be read. A
// tokenizer that this program doesn't support is copied unchanged.
struct TokenizerFiles {
  std::map<std::string, std::string> texts;
  std::optional<std::int32_t> end_of_text;
};
TokenizerFiles tokenizer_files(const TokenizerConfig&, std::int64_t max_position_embeddings);

// The tokenizer.json of type "byte": each byte has its number as its id. Tokens that are known to
// be bytes by it needn't be UTF-8.
const std::string& byte_tokenizer();
// Whether the directory contains byte_tokenizer().
bool has_byte_tokenizer(const std::string& directory);

// The token that ends a text: `eos_token`, if given; else the token named in `tokenizer_config` (a
// tokenizer_config.json, or ""); else one of the usual names. nullopt if the tokenizer lacks the
// named token, or all usual names.
std::optional<std::int32_t> end_of_text(const Tokenizer&, const std::string& eos_token,
                                        const std::string& tokenizer_config);

// The tokens that end a text of the model in a Hugging Face directory: from its
// generation_config.json, else from its config.json, else the tokenizer's own (may be null). As in
// transformers, a generation_config.json without such tokens means that no token ends a text. With
// `look_on` the other sources are tried even then, for a format that has to name a token.
std::vector<std::int32_t> end_tokens(const std::string& directory, const Tokenizer* tokenizer,
                                     bool look_on = false);
// A token id in such a file; nullopt if the value is not a token id.
std::optional<std::int32_t> token_id(const nlohmann::json& value);

}  // namespace trident
