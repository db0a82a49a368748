// A config, then overrides, each after a NUL.
#include "engine/setup/registry.h"
#include "fuzz/fuzzing.h"
#include "settings/config.h"

namespace trident::fuzzing {

void fuzz_config(std::string_view input) {
  std::vector<std::string> parts = split(input, '\0');
  const std::string text = parts.front();
  parts.erase(parts.begin());
  const LoadOptions options{.constraints = built_in_constraints(), .ranks = 8, .cores = 4};
  LoadedConfig loaded;
  if (!accepted([&] { loaded = parse_config(text, parts, options); })) return;
  const Config& config = loaded.config;
  config.data.split_fractions();
  require(config.world_size() > 0 && config.stages() > 0 && config.num_microbatches() > 0 &&
              config.padded_vocab_size() >= config.model.vocab_size && config.head_dim() > 0,
          "sizes that follow from a config are above 0");
  require(parse_config(loaded.filled_in, {}, options).config == config,
          "a run's config.json loads as the config that it was written of");
  require(parse_config(config_to_json(config), {}, options).config == config,
          "a config with every key loads as itself");
}

}  // namespace trident::fuzzing
