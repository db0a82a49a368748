// PipeDream and PipeDream-2BW as a program without a pipeline: one rank has all stages, and each
// micro-batch uses weights of the age that the schedule's delay rule prescribes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/context.h"
#include "settings/config.h"

namespace trident::testing {

inline constexpr int iterations = 5;
inline constexpr double rate = 3e-3;

struct Trajectory {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> weights;  // by name and tensor rank, of data rank 0

  bool operator==(const Trajectory&) const = default;
};

std::vector<float> host(Context& context, const Tensor& tensor);

// `split`: the number of layers in each stage of the pipeline that is compared.
Trajectory serial(const Config& config, const std::vector<std::int64_t>& split,
                  bool each_microbatch);

}  // namespace trident::testing
