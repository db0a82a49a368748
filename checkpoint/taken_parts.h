// What a run takes of a checkpoint that another run has saved.
#pragma once

#include <cstdint>

namespace trident {

// What a run takes of a checkpoint: all of it, unless it was asked for parts.
struct TakenParts {
  bool optimizer = true;  // its state and step, and the loss scale
  bool iteration = true;
  bool data = true;  // the place in it
  // Of the checkpoint's vocabulary, where the run's has more: the rows of these are written, and
  // others 0 in states of the optimizer. 0: it has as many.
  std::int64_t entries = 0;

  bool all() const { return optimizer && iteration && data; }
};

}  // namespace trident
