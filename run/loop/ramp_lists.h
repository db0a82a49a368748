// The lists of actions of a run whose batches grow: one schedule for each number of micro-batches.
// An object makes each schedule when the run needs it, once for all ranks of its process.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "datasets/batch_sizes.h"
#include "scheduler/run_lists.h"
#include "settings/config.h"

namespace trident {

class RampLists {
 public:
  // Throws RequestError at /batch/rampup_batch_size if one of the schedules can't be made.
  RampLists(const Config&, const BatchSizes&);
  // Any thread may call it. Ranks call it in the order of their iterations.
  std::shared_ptr<const RunLists> of(std::int64_t microbatches);

 private:
  Config with(std::int64_t microbatches) const;

  Config config_;
  std::mutex mutex_;
  std::int64_t last_ = 0;
  std::shared_ptr<const RunLists> lists_;  // for `last_` micro-batches
};

}  // namespace trident
