// PipeDream and PipeDream-2BW order their actions as 1F1B does. They differ in when weights are
// updated, and they never flush the pipeline between iterations.
#include <fmt/format.h>

#include "base/error.h"
#include "scheduler/schedules.h"

namespace trident {

Schedule pipedream(int stages, int microbatches) {
  Schedule schedule = one_f_one_b(stages, microbatches);
  schedule.kind = "pipedream";
  schedule.updates = Updates::each_microbatch;
  return schedule;
}

Schedule pipedream_2bw(int stages, int microbatches) {
  // The first rank is p-1 forwards ahead. If that is more than an iteration's micro-batches, a
  // micro-batch would need weights from two updates ago, but only two versions are kept (Narayanan
  // 2021).
  if (microbatches < stages - 1) {
    throw RequestError(fmt::format(
        "pipedream_2bw keeps two versions of the weights, for which it needs at least "
        "as many micro-batches as stages less one, got {} and {}; use {} micro-batches or "
        "more, or pipedream",
        microbatches, stages, stages - 1));
  }
  Schedule schedule = one_f_one_b(stages, microbatches);
  schedule.kind = "pipedream_2bw";
  schedule.updates = Updates::one_batch_late;
  return schedule;
}

}  // namespace trident
