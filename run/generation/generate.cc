#include "run/generation/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "run/generation/whole_model.h"

namespace trident {

std::vector<std::vector<std::int32_t>> generate(Context& context, Transport& transport,
                                                const ArchitectureSet& architectures,
                                                const std::string& directory,
                                                const std::vector<std::int32_t>& prompt,
                                                const GenerateOptions& options) {
  if (prompt.empty()) {
    throw RequestError(
        "trident generate: the prompt is empty; give at least one token by --prompt, --ids or "
        "standard "
        "input");
  }
  WholeModel model(context, transport, architectures, directory);
  model.require_known(prompt, "trident generate: the prompt");
  const std::int64_t window = model.positions();
  KeyValueCache cache(window);
  std::vector<std::int32_t> cached;  // the tokens whose keys and values `cache` holds
  // Beyond the window each new token shifts the positions of all others, so the cache can't be
  // used.
  const auto next_logits = [&](const std::vector<std::int32_t>& tokens) {
    if (std::ssize(tokens) > window) {
      return model.evaluator().next_logits(
          std::span(tokens).last(static_cast<std::size_t>(window)));
    }
    // The last token is always computed again, since its logits are needed.
    const auto common = std::ranges::mismatch(cached, std::span(tokens).first(tokens.size() - 1));
    auto begin = common.in1 - cached.begin();
    if (!cache.holds_before(begin)) begin = 0;
    cached = tokens;
    return model.evaluator().next_logits(std::span(tokens).subspan(static_cast<std::size_t>(begin)),
                                         cache, begin);
  };
  std::vector<std::vector<std::int32_t>> texts;
  for (std::int64_t text = 0; text < options.texts; ++text) {
    std::vector<std::int32_t>& tokens = texts.emplace_back(prompt);
    for (std::int64_t i = 0; i < options.tokens; ++i) {
      std::vector<float> logits = next_logits(tokens);
      if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
        throw Error(
            fmt::format("{}: after {} tokens the logits are not finite", directory, tokens.size()));
      }
      const std::int32_t token =
          sample(std::move(logits), tokens, options.sampling, static_cast<std::uint64_t>(i),
                 static_cast<std::uint64_t>(text));
      tokens.push_back(token);
      if (std::ranges::find(options.end, token) != options.end.end()) break;
      if (options.on_token && !options.on_token(text, token)) break;
    }
  }
  return texts;
}

}  // namespace trident
