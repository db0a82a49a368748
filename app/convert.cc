// `export` and `import`: between a run's weights and Hugging Face directories. Both sides have the
// same form today, so each reads, checks and writes anew.
#include "training/run/convert.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "app/commands.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/process.h"
#include "training/checkpoint/checkpoint_tools.h"
#include "training/gguf/gguf_export.h"
#include "training/hugging_face/model_directory.h"

namespace trident::app {
namespace {

struct ConvertOptions {
  std::string from, to, type;
  bool overwrite = false;
};

int to_gguf_file(const ConvertOptions& options, const std::string& from) {
  const auto notes = export_gguf(built_in_architectures(), from, options.to,
                                 options.type.empty() ? "auto" : options.type, options.overwrite);
  for (const std::string& note : notes) {
    fmt::print(stderr, "{}: {}\n", printable(options.to, 200), printable(note, 400));
  }
  fmt::print("wrote {}\n", options.to);
  return 0;
}

CLI::App* add(CLI::App& app, Action& action, const char* name, const char* about,
              const std::shared_ptr<ConvertOptions>& options) {
  auto* command = app.add_subcommand(name, about);
  command->add_option("from", options->from)->required();
  command->add_option("to", options->to)->required();
  command->add_flag("--overwrite", options->overwrite, "Replace the model that is there");
  command->callback([options, exports = name == std::string_view("export"), &action] {
    action = [options, exports] {
      if (options->to.empty()) {
        throw RequestError(std::string(exports ? "export" : "import") +
                           ": needs a name for what it writes, not \"\"");
      }
      const std::string from = weights_directory(options->from);
      require_whole_weights(from);
      if (exports && options->to.ends_with(".gguf")) return to_gguf_file(*options, from);
      if (!options->type.empty()) {
        throw RequestError("export: --outtype is for a FILE.gguf; directories keep every bit");
      }
      const std::string note =
          convert_weights(built_in_architectures(), from, options->to, options->overwrite);
      if (!note.empty()) print_error(note);
      fmt::print("wrote {}\n", options->to);
      return 0;
    };
  });
  return command;
}

}  // namespace

void add_convert(CLI::App& app, const Launch&, Action& action) {
  const auto options = std::make_shared<ConvertOptions>();
  add(app, action, "export",
      "Write a run's weights as a Hugging Face directory, RUN HF_DIR, or for llama.cpp, RUN "
      "FILE.gguf",
      options)
      ->add_option("--outtype", options->type, "Of a FILE.gguf: how matrices are stored")
      ->check(CLI::IsMember(gguf_types));
  add(app, action, "import", "Take a Hugging Face directory's weights: HF_DIR DIR",
      std::make_shared<ConvertOptions>());
}

}  // namespace trident::app
