// Which sizes of a pipeline go with which schedule, for messages: what they advise has to work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "settings/config.h"
#include "settings/constraints.h"

namespace trident::config_detail {

struct PipelineSizes {
  std::int64_t ranks = 1, chunks = 1;
  const ScheduleConstraints* schedule = nullptr;  // nullptr: isn't known, and any will do
};

// The problem with a schedule's chunks is none of the kinds that validate_pipeline() reports.
bool fit(const PipelineSizes&);

// "use 2, or schedule "1f1b"": the nearest to the config's sizes that fit, and fit its layers: one
// key changed in up to two ways, else as few as possible. The value of `path`, kPipeline or
// kChunks, stands alone, others with their key.
std::string pipeline_choices(const Config&, const ScheduleConstraints*, std::string_view path);

}  // namespace trident::config_detail
