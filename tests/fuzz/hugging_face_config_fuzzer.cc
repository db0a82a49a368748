// The config.json of a Hugging Face directory.
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "engine/setup/registry.h"
#include "fuzz/fuzzing.h"
#include "models/architecture.h"
#include "settings/config.h"

namespace trident::fuzzing {
namespace {

// A config like that of config_of_directory().
Config config_with(const std::string& model) {
  nlohmann::json keys = parse_json(model, "model");
  keys["make_vocab_size_divisible_by"] = 1;
  const nlohmann::json request{
      {"model", keys},
      {"batch", {{"micro_batch_size", 1}, {"global_batch_size", 1}}},
      {"data", {{"train", {{{"path", "-"}}}}, {"tokenizer", {{"type", "file"}, {"path", "-"}}}}},
      {"training", {{"train_iters", 1}}}};
  return parse_config(json_text(request), {}, {.constraints = built_in_constraints()}).config;
}

}  // namespace

void fuzz_hugging_face_config(std::string_view input) {
  for (const auto& [name, architecture] : built_in_architectures()) {
    std::string model;
    if (!accepted([&] { model = architecture->formats().model_config(input); })) continue;
    for (const bool conversion : {false, true}) {
      parse_json(architecture->formats().kept_config(input, conversion), "kept");
    }
    Config config;
    if (!accepted([&] { config = config_with(model); })) continue;
    const std::string written = architecture->formats().hugging_face_config(config);
    require(config_with(architecture->formats().model_config(written)).model == config.model,
            "a model's config.json is read as the model that it was written of");
  }
}

}  // namespace trident::fuzzing
