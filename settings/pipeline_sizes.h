// The sizes of a pipeline that a schedule allows. Error messages use them to suggest sizes that
// work. Private to settings/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "settings/config.h"
#include "settings/constraints.h"

namespace trident::config_detail {

struct PipelineSizes {
  std::int64_t ranks = 1, chunks = 1;
  const ScheduleConstraints* schedule = nullptr;  // nullptr: unknown, so that all sizes fit
};

// Whether validate_pipeline() accepts these sizes for their schedule.
bool fit(const PipelineSizes&);

// "use 2, or schedule "1f1b"": the sizes nearest to the config's that fit the schedule and the
// number of layers. It suggests up to two ways that change one key, else as few keys as possible.
// The text has the value of `path` (kPipeline or kChunks) alone and other values with their key.
std::string pipeline_choices(const Config&, const ScheduleConstraints*, std::string_view path);

}  // namespace trident::config_detail
