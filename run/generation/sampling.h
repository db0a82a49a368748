// Samples the next token from its logits. The filters and their order are those of transformers'
// `generate`; the random numbers are this program's own. The result depends on the arguments alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trident {

struct SamplingOptions {
  double temperature = 0.8;       // 0: always the likeliest token
  std::int64_t top_k = 40;        // keeps the k likeliest tokens; 0: all
  double top_p = 1;               // keeps the likeliest tokens whose probabilities sum to this
  double min_p = 0;               // keeps tokens with this fraction of the highest probability
  double repetition_penalty = 1;  // above 1: makes tokens that occurred before less likely
  std::uint64_t seed = 1234;
};

// `before` holds the tokens of the prompt and the tokens sampled so far. `draw` is the index of the
// token in its text, and `text` is the index of the text; each pair has its own random numbers.
std::int32_t sample(std::vector<float> logits, std::span<const std::int32_t> before,
                    const SamplingOptions& options, std::uint64_t draw, std::uint64_t text = 0);

}  // namespace trident
