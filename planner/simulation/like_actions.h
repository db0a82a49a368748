// Matches the actions of the whole schedule with the actions of a trace, which has fewer
// micro-batches.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "scheduler/action.h"

namespace trident {

// The properties by which actions match: the chunk, the kind, whether the action is one of a fused
// pair, and whether it is the first or the last of its kind in the chunk.
struct LikeAction {
  int chunk = 0;
  Kind kind = Kind::forward;
  bool fused = false;
  bool first = false, last = false;
  auto operator<=>(const LikeAction&) const = default;
};

// Returns the properties of each action of a list, for a rank that holds these stages.
std::vector<LikeAction> like_actions(const std::vector<Action>& list, const std::vector<int>& held);

// Returns the value for actions like `one`, or nearly like it: a longer list has actions in the
// middle where the traced one has none, or the reverse. Returns null if `known` has none of that
// chunk and kind.
template <class T>
const T* find_like(const std::map<LikeAction, T>& known, LikeAction one) {
  const LikeAction asked = one;
  for (const bool fused : {asked.fused, !asked.fused}) {
    for (const auto& [first, last] :
         {std::pair(asked.first, asked.last), std::pair(false, asked.last),
          std::pair(asked.first, false), std::pair(false, false), std::pair(true, true),
          std::pair(true, false), std::pair(false, true)}) {
      one.fused = fused, one.first = first, one.last = last;
      if (const auto found = known.find(one); found != known.end()) return &found->second;
    }
  }
  return nullptr;
}

}  // namespace trident
