#include "scheduler/interleaved.h"
#include "scheduler/schedules.h"

namespace trident {

Schedule interleaved_zero_bubble(int stages, int microbatches, int chunks, int group_size) {
  return interleaved({.kind = "interleaved_zero_bubble",
                      .stages = stages,
                      .microbatches = microbatches,
                      .chunks = chunks,
                      .group_size = group_size},
                     1, true);
}

}  // namespace trident
