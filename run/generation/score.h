// Computes the log-likelihood of given continuations, as multiple-choice benchmarks need it. The
// model runs on one rank, so the transport's world has a single rank.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/context.h"
#include "models/architecture.h"
#include "parallel/transport/transport.h"

namespace trident {

struct ScoreRequest {
  std::string place;                  // of the line that asked for it: "FILE:LINE"
  std::vector<std::int32_t> context;  // at least one token
  std::vector<std::int32_t> continuation;
};
// Parses a line for each request, {"context": [464, 3290], "continuation": [318]}; ignores other
// keys and empty lines. RequestErrors begin with `name` and the number of the line.
std::vector<ScoreRequest> read_score_requests(std::string_view text, const std::string& name);

struct Score {
  double log_likelihood = 0;  // sum over the continuation, in nats
  bool greedy = true;         // every token of the continuation is the likeliest in its position
};

// Calls `scored` with the score of each request, in order. Drops the beginning of a context where
// context and continuation together exceed the model's positions. RequestError where the directory
// holds no model; RequestError with its place where the context or the continuation of a request
// is empty, a token is beyond the vocabulary, or the continuation is longer than the positions.
// Error where logits are not finite.
void score(Context&, Transport&, const ArchitectureSet&, const std::string& directory,
           const std::vector<ScoreRequest>&, const std::function<void(const Score&)>& scored);

}  // namespace trident
