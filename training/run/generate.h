// Samples text from a Hugging Face directory that this program wrote or can read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/context.h"
#include "models/architecture.h"
#include "parallel/transport/transport.h"

namespace trident {

struct GenerateOptions {
  std::int64_t tokens = 200;  // to be added to the prompt
  double temperature = 0.8;   // 0: the likeliest token each time
  std::int64_t top_k = 40;    // 0: all
  std::uint64_t seed = 1234;
};

// Token ids of prompt and continuation. Older tokens leave the window where the model's positions
// end. RequestError where the directory is no model, or a prompt token is beyond its vocabulary.
std::vector<std::int32_t> generate(Context&, Transport&, const ArchitectureSet&,
                                   const std::string& directory,
                                   const std::vector<std::int32_t>& prompt, const GenerateOptions&);

}  // namespace trident
