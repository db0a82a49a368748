#include "scheduler/run_lists.h"

namespace trident {

RunLists::RunLists(const Schedule& one, std::int64_t count)
    : schedule(one), iterations(one, count) {
  if (overlaps_next_iteration(schedule)) opening = opening_of(schedule, iterations.of(0).lists);
}

}  // namespace trident
