// Generates the reference page, docs/config.md.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "settings/fields.h"

namespace trident {
namespace config_detail {
namespace {

// A cell of a Markdown table.
std::string cell(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '|' ? std::string("\\|") : std::string(1, c);
  return result;
}

std::string markdown_row(const Field& field, const ConfigConstraints& constraints) {
  std::string usual = field.derived(constraints);
  if (field.required) {
    usual = parent(field.path) == "/model" ? "that of `checkpoint.load`; without it, must be given"
                                           : "must be given";
  } else if (usual.empty()) {
    usual = "`" + json_text(usual_value(field)) + "`";
  }
  std::string value = expected(field, constraints);
  if (!field.unit.empty()) value += fmt::format(" ({})", field.unit);
  return fmt::format("| `{}` | {} | {} | {} |\n", leaf(field.path), cell(value), cell(usual),
                     cell(field.doc(constraints)));
}

}  // namespace
}  // namespace config_detail

std::string config_reference_markdown(const ConfigConstraints& constraints) {
  using namespace config_detail;
  std::string page =
      "# The configuration file\n\n<!-- Generated from the field table (settings/fields.h); "
      "tests/settings/schema_test.cc keeps it current. -->\n\nOne JSON object of sections. Every "
      "key is checked: an unknown key, a wrong type or a number out of range is an error, and all "
      "errors are shown at once. A key that is left out gets its default; a key whose default is "
      "described in words may also be `null`, which is the same. `--set section.key=value` "
      "overrides on the command line (a JSON value, else a string; list elements by number, `--set "
      "data.train.0.path=book.txt`; `null` takes a key out). `--dry-run` prints the config with "
      "every default filled in.\n\nComments are `//` to the end of a line and `/* */`. "
      "`\"extends\": \"base.json\"`, or a list of paths, begins from other configs, by paths from "
      "the folder of the file that names them. Sections are merged key by key: the file's own "
      "values win, then those of later configs. Lists are not merged, and `null` takes a key out. "
      "Where `checkpoint.load` names a folder with weights, keys that `model` leaves out are taken "
      "from them. `\"$schema\"` may name the file that `trident schema` wrote, so that an editor "
      "completes and checks keys. `trident init` writes a config to start from.\n\nA run keeps its "
      "config twice in `logging.dir`. `config.user.json` is the config as it was asked for: the "
      "file with its overrides and without defaults, and with the layout that `parallel: \"auto\"` "
      "chose in its place; `config.json` is the config as it ran. `derived` in the latter lists "
      "the keys whose values followed from others or from the machine, each with the value that "
      "was written in its place. A run that starts from `config.json` has the same numbers on any "
      "machine. Values that follow from an override or from an edit of the file are derived anew: "
      "with another `training.train_iters`, `scheduler.decay_iters` changes, too. `--set "
      "derived=null` keeps every number as it is.\n";
  for (const Section& section : sections()) {
    std::string title = section.path.empty() ? "top level" : section.path.substr(1);
    std::replace(title.begin(), title.end(), '/', '.');
    page += fmt::format("\n## {}\n\n{}\n\n| key | value | default | meaning |\n|---|---|---|---|\n",
                        title, section.doc);
    for (const Field& field : fields()) {
      if (parent(field.path) == section.path) page += markdown_row(field, constraints);
    }
  }
  return page;
}

}  // namespace trident
