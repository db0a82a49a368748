// Samples text from a Hugging Face directory that this program wrote or can read.
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
  std::int64_t tokens = 200;  // to be added to the prompt
  SamplingOptions sampling = {};
  std::int64_t texts = 1;              // that begin with the prompt
  std::vector<std::int32_t> end = {};  // tokens after which a text is over
  // After each token that isn't one of those; false: the text is over.
  std::function<bool(std::int64_t text, std::int32_t token)> on_token = {};
};

// Token ids of prompt and continuation, of each text. Older tokens leave the window where the
// model's positions end. RequestError where the directory is no model, or a prompt token is beyond
// its vocabulary.
std::vector<std::vector<std::int32_t>> generate(Context&, Transport&, const ArchitectureSet&,
                                                const std::string& directory,
                                                const std::vector<std::int32_t>& prompt,
                                                const GenerateOptions&);

}  // namespace trident
