// The parts of another run's checkpoint that a run loads.
#pragma once

#include <cstdint>

namespace trident {

// By default all parts are loaded.
struct TakenParts {
  bool optimizer = true;  // its state and step, and the loss scale
  bool iteration = true;
  bool data = true;  // the position in the data
  // The number of rows in the checkpoint's vocabulary, if the run's has more. These rows are
  // loaded. The run's further rows keep their weights and get optimizer states of 0. 0: both have
  // the same number.
  std::int64_t entries = 0;

  bool all() const { return optimizer && iteration && data; }
};

}  // namespace trident
