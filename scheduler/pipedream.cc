// PipeDream and PipeDream-2BW order their actions as 1F1B does; what differs is when weights
// change, and so that nothing is flushed between iterations.
#include "scheduler/schedules.h"

namespace trident {

Schedule pipedream(int stages, int microbatches) {
  Schedule schedule = one_f_one_b(stages, microbatches);
  schedule.kind = "pipedream";
  schedule.updates = Updates::each_microbatch;
  return schedule;
}

Schedule pipedream_2bw(int stages, int microbatches) {
  Schedule schedule = one_f_one_b(stages, microbatches);
  schedule.kind = "pipedream_2bw";
  schedule.updates = Updates::one_batch_late;
  return schedule;
}

}  // namespace trident
