// `export` and `import`: convert between a run's weights and Hugging Face directories. Both have
// the same format today, so either command reads, checks and rewrites the weights.
#include "run/evaluation/convert.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/options.h"
#include "base/error.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "base/process/process.h"
#include "checkpoint/checkpoint_tools.h"
#include "formats/gguf/gguf_export.h"
#include "formats/hugging_face/model_directory.h"

namespace trident::app {
namespace {

struct ConvertOptions {
  std::string from, to, type, format = "text";
  bool overwrite = false;
};

// Reports the written path and the notes about it.
void report_written(const ConvertOptions& options, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) print_error(note);
  if (options.format == "json") {
    fmt::print("{}\n", json_text(nlohmann::ordered_json{{"wrote", options.to}, {"notes", notes}}));
  } else {
    fmt::print("wrote {}\n", printable(options.to));
  }
}

int to_gguf_file(const ConvertOptions& options, const std::string& from) {
  auto notes = export_gguf(built_in_architectures(), from, options.to,
                           options.type.empty() ? "auto" : options.type, options.overwrite);
  for (std::string& note : notes) {
    note = fmt::format("{}: {}", printable(options.to, 200), printable(note, 400));
  }
  report_written(options, notes);
  return 0;
}

CLI::App* add(CLI::App& app, Action& action, const char* name, const char* about,
              const std::shared_ptr<ConvertOptions>& options) {
  auto* command = app.add_subcommand(name, about);
  command->add_option("from", options->from)->required();
  command->add_option("to", options->to)->required();
  command->add_flag("--overwrite", options->overwrite, "Replace the model that is there");
  add_format_option(*command, options->format);
  command->callback([options, exports = name == std::string_view("export"), &action] {
    action = [options, exports] {
      if (options->to.empty()) {
        throw RequestError(std::string(exports ? "trident export" : "trident import") +
                           ": needs a name for what it writes, not \"\"");
      }
      const std::string from = weights_directory(options->from);
      require_whole_weights(from);
      if (exports && options->to.ends_with(".gguf")) return to_gguf_file(*options, from);
      if (!options->type.empty()) {
        throw RequestError("--outtype: is for a FILE.gguf; directories keep every bit");
      }
      const std::string note =
          convert_weights(built_in_architectures(), from, options->to, options->overwrite);
      report_written(*options, note.empty() ? std::vector<std::string>{} : std::vector{note});
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
