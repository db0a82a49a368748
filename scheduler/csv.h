// Schedules as CSV, in the compute-only form that PyTorch's pipelining reads and writes. It has a
// row per rank and a cell per action: "<stage><letter><micro-batch>" with F forward, I input
// gradient, W weight gradient, B both. A fused pair is "(0F4;7B3)OVERLAP_F_B". An empty cell is an
// idle step.
#pragma once

#include <string>
#include <string_view>

#include "scheduler/action.h"

namespace trident {

// Pads the rows with empty cells to one length.
std::string to_csv(const Schedule& schedule);

// Parses a schedule; `kind` becomes its name. It drops idle steps, as an action starts as soon as
// it can. A rank's chunks are the stages of its row in ascending order. A row may end early. Throws
// RequestError, with the row and cell (from 1) of the first twenty problems, unless every cell has
// the form above and every rank has actions of the same number of stages. The caller still has to
// validate the schedule (validate.h).
Schedule from_csv(std::string_view text, const std::string& kind);

}  // namespace trident
