#include "run/loop/ramp_lists.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "settings/constraints.h"

namespace trident {

RampLists::RampLists(const Config& config, const BatchSizes& batches) : config_(config) {
  // A schedule that a search finds exists for every number of micro-batches, and takes seconds.
  if (schedule_constraints(config).searched) return;
  const std::int64_t unit = config.batch.global_batch_size / config.num_microbatches();
  for (const std::int64_t size : batches.sizes()) {
    try {
      schedule_of(with(size / unit));
    } catch (const RequestError& error) {
      std::vector<std::string> problems = error.problems();
      for (std::string& problem : problems) {
        const std::string_view prefix = "config: ";
        if (problem.starts_with(prefix)) problem.erase(0, prefix.size());
        problem.insert(0, fmt::format("config: /batch/rampup_batch_size: batches of {} sequences, "
                                      "{} micro-batches: ",
                                      size, size / unit));
      }
      throw RequestError(std::move(problems));
    }
  }
}

Config RampLists::with(std::int64_t microbatches) const {
  Config config = config_;
  BatchConfig& batch = config.batch;
  batch.global_batch_size = batch.global_batch_size / config_.num_microbatches() * microbatches;
  batch.gradient_accumulation_steps = microbatches;
  batch.rampup_batch_size.clear();
  return config;
}

std::shared_ptr<const RunLists> RampLists::of(std::int64_t microbatches) {
  const std::lock_guard lock(mutex_);
  if (lists_ == nullptr || last_ != microbatches) {
    lists_ = std::make_shared<RunLists>(schedule_of(with(microbatches)), 1);
    last_ = microbatches;
  }
  return lists_;
}

}  // namespace trident
