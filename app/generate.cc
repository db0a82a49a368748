#include "training/run/generate.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/options.h"
#include "core/error.h"
#include "kernels/cuda_device.h"
#include "training/checkpoint/checkpoint_tools.h"
#include "training/hugging_face/model_directory.h"

namespace trident::app {
namespace {

struct Request {
  std::string directory, prompt, format = "text";
  std::vector<std::int32_t> ids;
  GenerateOptions generate;
};

int run(const Request& options, const Launch& launch) {
  const auto architectures = built_in_architectures();
  const std::string directory = weights_directory(options.directory);
  require_whole_weights(directory);
  const Config config = config_of_directory(architectures, directory);
  const bool bytes = options.ids.empty();
  if (bytes && config.model.vocab_size != 256) {
    throw RequestError(fmt::format(
        "generate: --prompt takes text for a vocabulary of 256 bytes, this model has {}; use --ids",
        config.model.vocab_size));
  }
  std::vector<std::int32_t> prompt = options.ids;
  for (const char c : options.prompt) prompt.push_back(static_cast<unsigned char>(c));
  const auto device = find_gpus().count > 0 ? make_cuda_device(0) : make_cpu_device();
  std::vector<std::int32_t> tokens;
  run_local(1, {}, [&](Transport& transport) {
    Context context(*device, launch.cores);
    tokens = generate(context, transport, architectures, directory, prompt, options.generate);
  });
  std::string text;
  if (bytes) {
    for (const std::int32_t token : tokens) text += static_cast<char>(token);
  }
  if (options.format == "json") {
    nlohmann::ordered_json json{{"tokens", tokens}};
    if (bytes) json["text"] = text;
    // Bytes that are no UTF-8 become replacement characters in JSON.
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}\n", bytes ? text : fmt::format("{}", fmt::join(tokens, " ")));
  }
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, const Launch& launch, Action& action) {
  auto* command = app.add_subcommand("generate", "Sample from trained weights");
  auto options = std::make_shared<Request>();
  command->add_option("directory", options->directory, "A Hugging Face directory, or a run")
      ->required();
  auto* prompt = command->add_option("--prompt", options->prompt, "Text (byte vocabularies)");
  command->add_option("--ids", options->ids, "Token ids, comma-separated")
      ->delimiter(',')
      ->excludes(prompt);
  command->add_option("--tokens", options->generate.tokens, "Tokens to add")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--temperature", options->generate.temperature, "0 takes the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-k", options->generate.top_k, "Sample among the k likeliest; 0: all")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command->add_option("--seed", options->generate.seed)->capture_default_str();
  add_format_option(*command, options->format);
  command->callback([options, &launch, &action] {
    action = [options, &launch] { return run(*options, launch); };
  });
}

}  // namespace trident::app
