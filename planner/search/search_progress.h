// The progress of a search of layouts (layout_search.h).
#pragma once

#include <cstdint>

namespace trident {

struct SearchProgress {
  std::int64_t ranks = 0;
  std::int64_t evaluated = 0, layouts = 0;  // for that many ranks
  std::int64_t simulated = 0;               // in total
  double best_seconds = 0;                  // 0: no layout fits yet
};

}  // namespace trident
