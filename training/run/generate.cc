#include "training/run/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "training/engine/evaluator.h"
#include "training/engine/rank_model.h"
#include "training/hugging_face/hugging_face.h"
#include "training/hugging_face/model_directory.h"
#include "training/setup/from_config.h"

namespace trident {
std::vector<std::vector<std::int32_t>> generate(Context& context, Transport& transport,
                                                const ArchitectureSet& architectures,
                                                const std::string& directory,
                                                const std::vector<std::int32_t>& prompt,
                                                const GenerateOptions& options) {
  const Config config = config_of_directory(architectures, directory);
  const Architecture& architecture = *architectures.at(config.model.architecture);
  const TransformerShape shape = architecture.shape(config);
  if (prompt.empty()) {
    throw RequestError(
        "generate: the prompt is empty; give at least one token by --prompt, --ids or standard "
        "input");
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

  const std::int64_t window = config.model.max_position_embeddings;
  std::vector<std::vector<std::int32_t>> texts;
  for (std::int64_t text = 0; text < options.texts; ++text) {
    std::vector<std::int32_t>& tokens = texts.emplace_back(prompt);
    for (std::int64_t i = 0; i < options.tokens; ++i) {
      const auto length = std::min<std::int64_t>(window, static_cast<std::int64_t>(tokens.size()));
      std::vector<float> logits =
          evaluator.next_logits(std::span(tokens).last(static_cast<std::size_t>(length)));
      if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
        throw Error(fmt::format("generate: {}: after {} tokens the logits are not finite",
                                directory, tokens.size()));
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
