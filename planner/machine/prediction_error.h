// By how much predictions for a machine have been off, which stands beside each of them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/machine/machine.h"

namespace trident {

// "off by 2.6% in the mean of 24 published steps, 8.9% at most"; of a machine that was held against
// no step, that it wasn't.
std::string error_text(const Machine&);
// {"usual", "most", "of"} as the machine's file has it; null where it was held against none.
nlohmann::ordered_json error_json(const Machine&);

}  // namespace trident
