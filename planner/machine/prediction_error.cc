#include "planner/machine/prediction_error.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.h"

namespace trident {

std::string error_text(const Machine& machine) {
  const Machine::Error& error = machine.error;
  if (error.of.empty()) return "its error is unknown: no measured step was compared with it";
  return fmt::format("off by {} in the mean of {}, {} at most", percent_text(error.usual), error.of,
                     percent_text(error.most));
}

nlohmann::ordered_json error_json(const Machine& machine) {
  if (machine.error.of.empty()) return nullptr;
  return {{"usual", machine.error.usual}, {"most", machine.error.most}, {"of", machine.error.of}};
}

}  // namespace trident
