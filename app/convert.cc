// `export` and `import`: between a run's weights and Hugging Face directories. Both sides have the
// same form today, so each reads, checks and writes anew.
#include "training/convert.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "core/error.h"
#include "core/file.h"

namespace trident::app {
namespace {

// A run's folder names where its weights are; a folder of weights is taken as it is.
std::string weights_of(const std::string& run) {
  const auto json = nlohmann::json::parse(read_file(run + "/config.json"), nullptr, false);
  if (!json.is_object() || !json.contains("checkpoint")) return run;
  const std::string saved = json["checkpoint"].value("save", "");
  if (saved.empty()) {
    throw RequestError(run + "/config.json: /checkpoint/save: this run saved no weights");
  }
  return saved;
}

void add(CLI::App& app, Action& action, const char* name, const char* about) {
  auto* command = app.add_subcommand(name, about);
  auto paths = std::make_shared<std::pair<std::string, std::string>>();
  command->add_option("from", paths->first)->required();
  command->add_option("to", paths->second)->required();
  command->callback([paths, &action] {
    action = [paths] {
      convert_weights(built_in_architectures(), weights_of(paths->first), paths->second);
      fmt::print("wrote {}\n", paths->second);
      return 0;
    };
  });
}

}  // namespace

void add_convert(CLI::App& app, const Launch&, Action& action) {
  add(app, action, "export", "Write a run's weights as a Hugging Face directory: RUN HF_DIR");
  add(app, action, "import", "Take a Hugging Face directory's weights: HF_DIR DIR");
}

}  // namespace trident::app
