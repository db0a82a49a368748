// How likely a model finds given continuations: what benchmarks with choices ask.
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
  std::vector<std::int32_t> context;  // one token at least
  std::vector<std::int32_t> continuation;
};
// {"context": [464, 3290], "continuation": [318]}; other keys are passed over. RequestError, which
// begins with `place`.
ScoreRequest read_score_request(std::string_view line, const std::string& place);

struct Score {
  double log_likelihood = 0;  // the sum over the continuation, nats
  bool greedy = true;         // each of its tokens is the likeliest at its place
};

// Calls `scored` for each, in order. Where both together are longer than the model's positions, the
// context's beginning is left out. RequestError where the directory is no model; where a token is
// beyond its vocabulary, or a continuation is empty or longer than its positions, with `place(i)`.
void score(Context&, Transport&, const ArchitectureSet&, const std::string& directory,
           const std::vector<ScoreRequest>&, const std::function<std::string(std::size_t)>& place,
           const std::function<void(const Score&)>& scored);

}  // namespace trident
