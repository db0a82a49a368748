#include "scheduler/interleaved.h"
#include "scheduler/schedules.h"

namespace trident {

Schedule interleaved_one_f_one_b(int stages, int microbatches, int chunks, int group_size) {
  return interleaved({.kind = "interleaved_1f1b",
                      .stages = stages,
                      .microbatches = microbatches,
                      .chunks = chunks,
                      .group_size = group_size},
                     2, false);
}

}  // namespace trident
