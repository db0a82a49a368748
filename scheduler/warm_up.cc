#include "scheduler/warm_up.h"

#include <algorithm>
#include <map>
#include <utility>

#include "scheduler/simulate.h"

namespace trident {

namespace {

bool waits(Step step) {
  return step == Step::wait_receive_forward || step == Step::wait_receive_backward;
}

}  // namespace

WarmUp warm_up_of(const Schedule& schedule, const std::vector<std::vector<LoweredAction>>& lists) {
  const auto tag = [&](const LoweredAction& action) {
    return static_cast<std::size_t>(transfer_tag(action, schedule.microbatches));
  };
  WarmUp warm_up;
  std::vector<std::size_t> sent_at(2 * static_cast<std::size_t>(schedule.total_stages()) *
                                   static_cast<std::size_t>(schedule.microbatches));
  for (const auto& list : lists) {
    const auto ends = [&](const LoweredAction& action) {
      return action.step == Step::compute &&
             (action.kind != Kind::forward || action.stage + 1 == schedule.total_stages());
    };
    warm_up.length.push_back(std::find_if(list.begin(), list.end(), ends) - list.begin());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Step step = list[i].step;
      if (step == Step::send_forward || step == Step::send_backward) sent_at[tag(list[i])] = i;
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t rank = 0; rank < lists.size(); ++rank) {
      for (std::size_t i = 0; i < warm_up.length[rank]; ++i) {
        const LoweredAction& action = lists[rank][i];
        if (!waits(action.step)) continue;
        if (sent_at[tag(action)] < warm_up.length[static_cast<std::size_t>(action.peer)]) continue;
        warm_up.length[rank] = i;
        changed = true;
      }
    }
  }

  // Sent minus posted messages on each link, by receiver.
  using Link = std::pair<int, Kind>;  // peer, kind
  std::vector<std::map<Link, int>> surplus(lists.size());
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    for (std::size_t i = 0; i < warm_up.length[rank]; ++i) {
      const LoweredAction& a = lists[rank][i];
      const auto peer = static_cast<std::size_t>(a.peer);
      const int self = static_cast<int>(rank);
      if (a.step == Step::send_forward) ++surplus[peer][{self, Kind::forward}];
      if (a.step == Step::send_backward) ++surplus[peer][{self, Kind::backward}];
      if (a.step == Step::post_receive_forward) --surplus[rank][{a.peer, Kind::forward}];
      if (a.step == Step::post_receive_backward) --surplus[rank][{a.peer, Kind::backward}];
    }
  }
  warm_up.unmatched.resize(lists.size());
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    for (const auto& [link, count] : surplus[rank]) {
      const auto& [peer, kind] = link;
      if (count > 0) warm_up.unmatched[rank].push_back({peer, kind, count, 0});
      if (count < 0) {
        warm_up.unmatched[static_cast<std::size_t>(peer)].push_back(
            {static_cast<int>(rank), kind, 0, -count});
      }
    }
  }
  return warm_up;
}

bool overlaps_next_iteration(const Schedule& schedule) {
  if (schedule.asynchronous() || schedule.stages == 1) return false;
  Schedule two = schedule;
  two.microbatches *= 2;
  for (auto& actions : two.ranks) {
    const std::size_t count = actions.size();
    for (std::size_t i = 0; i < count; ++i) {
      Action again = actions[i];
      again.microbatch += schedule.microbatches;
      actions.push_back(again);
    }
  }
  const auto makespan = [](const Schedule& list) {
    return simulate(list, stage_times(list, {})).bubble.makespan;
  };
  return makespan(two) < 2 * makespan(schedule) * (1 - 1e-9);
}

}  // namespace trident
