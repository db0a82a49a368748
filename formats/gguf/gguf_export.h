// Exports a directory of weights to a single GGUF file for llama.cpp. The names in it are the
// family's (models/family_formats.h), its bytes gguf_file.h's. It runs in one process, without
// ranks.
#pragma once

#include <string>
#include <vector>

#include "models/architecture.h"

namespace trident {

// The types in which matrices are stored: "f32", "f16", "bf16", "q8_0" (rows whose length isn't a
// multiple of 32 become f16), or "auto", the type that holds the weights exactly. Vectors and
// learned positions are always f32, as llama.cpp requires.
inline const std::vector<std::string> gguf_types{"auto", "f32", "f16", "bf16", "q8_0"};

// Writes the weights of `from`, tensor by tensor, with its tokenizer, its chat template and the
// tokens that begin and end a text. Returns notes for people on llama.cpp's differences.
// Throws RequestError and writes nothing under the conditions of convert_weights()
// (run/evaluation/convert.h), if the family has no GGUF form, or if `to` exists and `overwrite` is
// false. Throws Error if a weight isn't finite in its type.
std::vector<std::string> export_gguf(const ArchitectureSet&, const std::string& from,
                                     const std::string& to, const std::string& type,
                                     bool overwrite);

}  // namespace trident
