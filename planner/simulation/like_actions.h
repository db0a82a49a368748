// A step is traced with few micro-batches; actions of the whole schedule are like those that were
// traced.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "scheduler/action.h"

namespace trident {

// Which chunk, what, and whether it is the first or the last of its kind there.
struct LikeAction {
  int chunk = 0;
  Kind kind = Kind::forward;
  bool first = false, last = false;
  auto operator<=>(const LikeAction&) const = default;
};

// Of each action of a list of a rank that holds these stages.
std::vector<LikeAction> like_actions(const std::vector<Action>& list, const std::vector<int>& held);

// What is known of actions like `one`, or nearly like it: longer lists have some in the middle
// where the traced one had none, or the other way round. Null: nothing.
template <class T>
const T* find_like(const std::map<LikeAction, T>& known, LikeAction one) {
  auto found = known.find(one);
  const LikeAction asked = one;
  for (const auto& [first, last] :
       {std::pair(false, asked.last), std::pair(asked.first, false), std::pair(false, false),
        std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
    if (found != known.end()) break;
    one.first = first, one.last = last;
    found = known.find(one);
  }
  return found == known.end() ? nullptr : &found->second;
}

}  // namespace trident
