// Names: of parameters, of checkpoints' folders, and as a terminal shows them.
#include "base/printable.h"
#include "checkpoint/checkpoint_folder.h"
#include "fuzz/fuzzing.h"
#include "models/layer_name.h"
#include "settings/config.h"

namespace trident::fuzzing {

void fuzz_names(std::string_view input) {
  const std::string name(input);
  try {
    require(parse_layer_name(name).index >= 0, "layers count from 0");
  } catch (const Error&) {  // the parameter belongs to no layer
  }
  const auto iteration = iteration_of(name);
  require(!iteration || checkpoint_name(*iteration) == name, "an iteration has one folder's name");
  if (is_iteration(name)) std::stoll(name);
  const std::string shown = printable(name, name.size());
  require(printable(shown, shown.size()) == shown, "printable text stays as it is");
  const std::string lines = printable_lines(name);
  require(printable_lines(lines) == lines, "printable text stays as it is");
}

}  // namespace trident::fuzzing
