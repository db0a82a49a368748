// `export` and `import`: between a run's weights and Hugging Face directories. Both sides have the
// same form today, so each reads, checks and writes anew.
#include "training/run/convert.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "app/commands.h"
#include "training/checkpoint/checkpoint_tools.h"
#include "training/hugging_face/model_directory.h"

namespace trident::app {
namespace {

struct ConvertOptions {
  std::string from, to;
  bool overwrite = false;
};

void add(CLI::App& app, Action& action, const char* name, const char* about) {
  auto* command = app.add_subcommand(name, about);
  auto options = std::make_shared<ConvertOptions>();
  command->add_option("from", options->from)->required();
  command->add_option("to", options->to)->required();
  command->add_flag("--overwrite", options->overwrite, "Replace the model that is there");
  command->callback([options, &action] {
    action = [options] {
      const std::string from = weights_directory(options->from);
      require_whole_weights(from);
      convert_weights(built_in_architectures(), from, options->to, options->overwrite);
      fmt::print("wrote {}\n", options->to);
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
