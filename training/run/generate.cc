#include "training/run/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/rng.h"
#include "training/engine/evaluator.h"
#include "training/engine/rank_model.h"
#include "training/hugging_face/hugging_face.h"
#include "training/hugging_face/model_directory.h"
#include "training/setup/from_config.h"

namespace trident {
namespace {

std::int32_t sample(std::vector<float> logits, const GenerateOptions& options,
                    std::uint64_t index) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature <= 0) return static_cast<std::int32_t>(best - logits.begin());
  const float maximum = *best;
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::size_t kept = logits.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const float x = logits[static_cast<std::size_t>(a)];
                      const float y = logits[static_cast<std::size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  std::vector<double> weights(kept);
  for (std::size_t i = 0; i < kept; ++i) {
    weights[i] =
        std::exp((static_cast<double>(logits[static_cast<std::size_t>(ids[i])]) - maximum) /
                 options.temperature);
  }
  const auto words = philox(
      {static_cast<std::uint32_t>(index), 0, 0, 0},
      {static_cast<std::uint32_t>(options.seed), static_cast<std::uint32_t>(options.seed >> 32)});
  double at = (words[0] + 0.5) * 0x1p-32 * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < kept; ++i) {
    at -= weights[i];
    if (at <= 0) return ids[i];
  }
  return ids[kept - 1];
}

}  // namespace

std::vector<std::int32_t> generate(Context& context, Transport& transport,
                                   const ArchitectureSet& architectures,
                                   const std::string& directory,
                                   const std::vector<std::int32_t>& prompt,
                                   const GenerateOptions& options) {
  const Config config = config_of_directory(architectures, directory);
  const Architecture& architecture = *architectures.at(config.model.architecture);
  const TransformerShape shape = architecture.shape(config);
  if (prompt.empty()) {
    throw RequestError(
        "generate: the prompt is empty; give at least one token by --prompt or --ids");
  }
  for (const std::int32_t token : prompt) {
    if (token < 0 || token >= shape.vocabulary) {
      throw RequestError(
          fmt::format("generate: token {} of the prompt is beyond the vocabulary ({})", token,
                      shape.vocabulary));
    }
  }
  const ProcessGroup world = transport.world();
  const Topology topology = make_topology(world, Mesh({}), transport.nodes());
  const Schedule schedule = schedule_of(config);
  RankModel model(context, config, architecture, schedule, topology);
  Evaluator evaluator(model, schedule);
  load_hugging_face(model, directory);

  std::vector<std::int32_t> tokens = prompt;
  const std::int64_t window = config.model.max_position_embeddings;
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const auto length = std::min<std::int64_t>(window, static_cast<std::int64_t>(tokens.size()));
    std::vector<float> logits =
        evaluator.next_logits(std::span(tokens).last(static_cast<std::size_t>(length)));
    if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
      throw Error(fmt::format("generate: {}: after {} tokens the logits are not finite", directory,
                              tokens.size()));
    }
    tokens.push_back(sample(std::move(logits), options, static_cast<std::uint64_t>(i)));
  }
  return tokens;
}

}  // namespace trident
