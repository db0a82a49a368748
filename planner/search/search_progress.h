// How far a search of layouts is (layout_search.h).
#pragma once

#include <cstdint>

namespace trident {

struct SearchProgress {
  std::int64_t ranks = 0;
  std::int64_t looked_at = 0, layouts = 0;  // of that many ranks
  std::int64_t simulated = 0;               // in all
  double best_seconds = 0;                  // 0: none fits yet
};

}  // namespace trident
