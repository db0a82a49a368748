// A directory of weights as one file for llama.cpp.
#pragma once

#include <string>
#include <vector>

#include "models/architecture.h"

namespace trident {

// How matrices are stored: "f32", "f16", "bf16", "q8_0" (rows that 32 doesn't divide as f16), or
// "auto", as they are. Vectors and learned positions are always f32, as llama.cpp wants them.
inline const std::vector<std::string> gguf_types{"auto", "f32", "f16", "bf16", "q8_0"};

// Writes the weights of `from`, tensor by tensor, with what lies beside them: tokenizer, chat
// template, the tokens that begin and end a text. Gives what llama.cpp does otherwise, for people.
// RequestError, and nothing is written, as convert_weights() (run/evaluation/convert.h), where the
// family has no GGUF form, and where `to` is there already and isn't to be overwritten. Error where
// a weight isn't finite in its type.
std::vector<std::string> export_gguf(const ArchitectureSet&, const std::string& from,
                                     const std::string& to, const std::string& type,
                                     bool overwrite);

}  // namespace trident
