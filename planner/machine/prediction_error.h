// Formats the error of a machine's predictions. Each printed prediction carries it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/machine/machine.h"

namespace trident {

// Returns "off by 2.6% in the mean of 24 published steps, 8.9% at most", or a note that the error
// is unknown where the machine's predictions were compared with no step.
std::string error_text(const Machine&);
// Returns {"usual", "most", "of"} as in the machine's file; null where the error is unknown.
nlohmann::ordered_json error_json(const Machine&);

}  // namespace trident
