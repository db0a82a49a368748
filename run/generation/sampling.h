// Draws the next token from its logits, as transformers' `generate` does: the same filters, in the
// same order. The random numbers are this program's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trident {

struct SamplingOptions {
  double temperature = 0.8;       // 0: the likeliest token each time
  std::int64_t top_k = 40;        // only the k likeliest; 0: all
  double top_p = 1;               // only the likeliest that have this much probability together
  double min_p = 0;               // only those with this part of the likeliest one's probability
  double repetition_penalty = 1;  // above 1: tokens that are there already become less likely
  std::uint64_t seed = 1234;
};

// `before`: the prompt's tokens and those drawn. `draw` counts the tokens of a text, `text` the
// texts; each pair has random numbers of its own.
std::int32_t sample(std::vector<float> logits, std::span<const std::int32_t> before,
                    const SamplingOptions& options, std::uint64_t draw, std::uint64_t text = 0);

}  // namespace trident
