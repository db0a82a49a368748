#include "planner/simulation/like_actions.h"

#include <algorithm>
#include <cstddef>

namespace trident {

std::vector<LikeAction> like_actions(const std::vector<Action>& list,
                                     const std::vector<int>& held) {
  std::map<std::pair<int, Kind>, std::pair<std::size_t, std::size_t>> ends;  // first, last
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto [at, added] = ends.try_emplace({list[i].stage, list[i].kind}, i, i);
    at->second.second = i;
  }
  std::vector<LikeAction> result;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto& [first, last] = ends.at({list[i].stage, list[i].kind});
    const auto chunk = std::find(held.begin(), held.end(), list[i].stage) - held.begin();
    const bool fused = list[i].fused || (i > 0 && list[i - 1].fused);
    result.push_back({static_cast<int>(chunk), list[i].kind, fused, i == first, i == last});
  }
  return result;
}

}  // namespace trident
