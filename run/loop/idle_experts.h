// Finds experts that get no tokens any more, by the statistics of each iteration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/statistics.h"

namespace trident {

class IdleExperts {
 public:
  // An expert is idle after this many iterations in a row without a token, if an even share of
  // their tokens would have been at least `least_tokens`.
  static constexpr std::int64_t least_iterations = 10;
  static constexpr double least_tokens = 1000;

  // Takes the statistics of the next iteration. Returns a warning that names the experts that have
  // become idle with it; "" if there are none. An expert that has had tokens again counts anew.
  std::string next(const StepStatistics&);

 private:
  struct Expert {
    std::int64_t iterations = 0;  // without a token
    double share = 0;             // the tokens that it would have had
    bool is_idle = false;
  };
  std::vector<std::vector<Expert>> layers_;
};

}  // namespace trident
