#include "run/generation/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/json.h"
#include "run/generation/whole_model.h"

namespace trident {
namespace {

std::vector<std::int32_t> ids_in(const nlohmann::json& request, const char* key,
                                 const std::string& place) {
  const auto wrong = [&] {
    throw RequestError(fmt::format("{}/{}: needs a list of token ids, one at least", place, key));
  };
  if (!request.contains(key) || !request[key].is_array() || request[key].empty()) wrong();
  std::vector<std::int32_t> ids;
  for (const auto& id : request[key]) {
    const bool fits = id.is_number_unsigned() &&
                      id.get<std::uint64_t>() <= std::numeric_limits<std::int32_t>::max();
    if (!fits) wrong();
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

// The score of one token, from the logits of its position, (vocabulary).
Score score_of(std::span<const float> logits, std::int32_t token) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
  const float own = logits[static_cast<std::size_t>(token)];
  return {static_cast<double>(own - largest) - std::log(sum), own == largest};
}

}  // namespace

std::vector<ScoreRequest> read_score_requests(std::string_view text, const std::string& name) {
  std::vector<ScoreRequest> requests;
  std::size_t line = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view one = text.substr(at, end - at);
    at = end + 1;
    const std::string place = fmt::format("{}:{}", name, ++line);
    if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const nlohmann::json request = parse_json(one, place);
    if (!request.is_object()) throw RequestError(place + ": isn't a JSON object");
    requests.push_back({place, ids_in(request, "context", place + ": "),
                        ids_in(request, "continuation", place + ": ")});
  }
  return requests;
}

void score(Context& context, Transport& transport, const ArchitectureSet& architectures,
           const std::string& directory, const std::vector<ScoreRequest>& requests,
           const std::function<void(const Score&)>& scored) {
  WholeModel model(context, transport, architectures, directory);
  const std::int64_t positions = model.positions();
  for (const auto& [place, before, continuation] : requests) {
    if (before.empty() || continuation.empty()) {
      throw RequestError(place + ": the context or the continuation has no token");
    }
    model.require_known(before, place + ": /context");
    model.require_known(continuation, place + ": /continuation");
    if (std::ssize(continuation) > positions) {
      throw RequestError(fmt::format("{}: /continuation: has {} tokens, the model {} positions",
                                     place, continuation.size(), positions));
    }
  }
  for (const auto& [place, before, continuation] : requests) {
    std::vector<std::int32_t> tokens = before;
    tokens.insert(tokens.end(), continuation.begin(), continuation.end() - 1);
    if (std::ssize(tokens) > positions) tokens.erase(tokens.begin(), tokens.end() - positions);
    const auto count = continuation.size();
    const std::vector<float> logits =
        model.evaluator().logits(tokens, std::ssize(tokens) - static_cast<std::int64_t>(count));
    const std::size_t row = logits.size() / count;
    Score sum;
    for (std::size_t t = 0; t < count; ++t) {
      const Score one = score_of(std::span(logits).subspan(t * row, row), continuation[t]);
      sum.log_likelihood += one.log_likelihood;
      sum.greedy = sum.greedy && one.greedy;
    }
    if (!std::isfinite(sum.log_likelihood)) {
      throw Error(fmt::format("{}: the logits are not finite", directory));
    }
    scored(sum);
  }
}

}  // namespace trident
