// The tokenizer.json of a byte-level BPE tokenizer.
#pragma once

#include <string>
#include <vector>

#include "training/tokenizer/bpe_trainer.h"

namespace trident {

// As the `tokenizers` package writes it, byte by byte: of ByteLevelBPETokenizer where `pattern` is
// kGpt2Pattern; else with that expression, whose matches are the words, before its bytes are taken.
// `special_tokens` have the first ids of `trained`.
std::string byte_level_tokenizer_file(const TrainedBpe& trained,
                                      const std::vector<std::string>& special_tokens,
                                      const std::string& pattern);

}  // namespace trident
