// Writes the tokenizer.json of a byte-level BPE tokenizer.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "datasets/tokenizer/bpe_trainer.h"

namespace trident {

// The "ByteLevel" object of a pre-tokenizer, post-processor or decoder, as the `tokenizers` package
// writes it.
nlohmann::ordered_json byte_level(bool add_prefix_space, bool trim_offsets, bool use_regex);

// The complete document except for the model's last two keys, "vocab" and "merges".
nlohmann::ordered_json byte_level_document(const nlohmann::ordered_json& added_tokens,
                                           const nlohmann::ordered_json& pre_tokenizer,
                                           const nlohmann::ordered_json& post_processor,
                                           const nlohmann::ordered_json& decoder);

// The text of the file, byte by byte as the `tokenizers` package writes it. If `pattern` is
// kGpt2Pattern, it is the file of a ByteLevelBPETokenizer. Otherwise a Split step with that
// pattern, whose matches are the words, comes before the byte-level step. `special_tokens` must
// have the first ids of `trained`.
std::string byte_level_tokenizer_file(const TrainedBpe& trained,
                                      const std::vector<std::string>& special_tokens,
                                      const std::string& pattern);

}  // namespace trident
