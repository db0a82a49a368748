// Schedules as CSV, the compute-only form that PyTorch's pipelining reads and writes: a row per
// rank, a cell per action: "<stage><letter><micro-batch>" with F forward, I input gradient, W
// weight gradient, B both, "(0F4;7B3)OVERLAP_F_B" for a fused pair; an empty cell is an idle step.
#pragma once

#include <string>
#include <string_view>

#include "scheduler/action.h"

namespace trident {

// Rows are filled up with empty cells to one length.
std::string to_csv(const Schedule& schedule);

// Idle steps are left out: an action starts as soon as it can. A rank's chunks are the stages of
// its row in ascending order; a row may end early. RequestError with the row and cell (from 1) of
// the first twenty problems unless every cell is of the form above, and every rank has actions of
// equally many stages. `kind` names the schedule. The schedule still has to be validated.
Schedule from_csv(std::string_view text, const std::string& kind);

}  // namespace trident
