// Generates text with a model from a Hugging Face directory that this program wrote or can read.
// The model runs on one rank, so the transport's world has a single rank.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/context.h"
#include "models/architecture.h"
#include "parallel/transport/transport.h"
#include "run/generation/sampling.h"

namespace trident {

struct GenerateOptions {
  std::int64_t tokens = 200;  // generated after the prompt, at most
  SamplingOptions sampling = {};
  std::int64_t texts = 1;              // continuations of the prompt
  std::vector<std::int32_t> end = {};  // tokens that end a text
  // Called after each token that isn't in `end`; returning false ends the text.
  std::function<bool(std::int64_t text, std::int32_t token)> on_token = {};
};

// Returns the token ids of each text, with the prompt. A text longer than the model's positions is
// continued from its last tokens. RequestError where the prompt is empty, the directory holds no
// model, or a prompt token is beyond the vocabulary; Error where logits are not finite.
std::vector<std::vector<std::int32_t>> generate(Context&, Transport&, const ArchitectureSet&,
                                                const std::string& directory,
                                                const std::vector<std::int32_t>& prompt,
                                                const GenerateOptions&);

}  // namespace trident
