// The tokenizer.json of a byte-level BPE tokenizer.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "datasets/tokenizer/bpe_trainer.h"

namespace trident {

// Its parts by bytes, as the `tokenizers` package has them.
nlohmann::ordered_json byte_level(bool add_prefix_space, bool trim_offsets, bool use_regex);

// All of it but the model's "vocab" and "merges", which come last.
nlohmann::ordered_json byte_level_document(const nlohmann::ordered_json& added_tokens,
                                           const nlohmann::ordered_json& pre_tokenizer,
                                           const nlohmann::ordered_json& post_processor,
                                           const nlohmann::ordered_json& decoder);

// As the `tokenizers` package writes it, byte by byte: of ByteLevelBPETokenizer where `pattern` is
// kGpt2Pattern; else with that expression, whose matches are the words, before its bytes are taken.
// `special_tokens` have the first ids of `trained`.
std::string byte_level_tokenizer_file(const TrainedBpe& trained,
                                      const std::vector<std::string>& special_tokens,
                                      const std::string& pattern);

}  // namespace trident
