// Runs lowered lists over the weakest transport that they may rely on.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "scheduler/lower.h"

namespace trident {

inline bool is_post(Step step) {
  return step == Step::post_receive_forward || step == Step::post_receive_backward;
}
inline bool is_wait(Step step) {
  return step == Step::wait_receive_forward || step == Step::wait_receive_backward;
}
inline bool is_send(Step step) {
  return step == Step::send_forward || step == Step::send_backward;
}

// The transport has only an ordered channel for each (sender, receiver, direction). A message moves
// some random time after its receive is posted. The list must still end, and each receive must get
// its own message.
inline void run_over_ordered_channels(const Schedule& schedule, std::mt19937& random) {
  struct Channel {
    std::vector<int> sent, posted;  // tags in order
    size_t moved = 0;
  };
  const auto lists = lower(schedule, static_cast<int>(random() % 3));
  std::map<std::tuple<int, int, bool>, Channel> channels;
  std::vector<size_t> next(lists.size(), 0);
  size_t left = 0;
  for (const auto& list : lists) left += list.size();
  const auto link = [&](int rank, const LoweredAction& a) -> Channel& {
    const bool forward = a.kind == Kind::forward;
    return is_send(a.step) ? channels[{rank, a.peer, forward}] : channels[{a.peer, rank, forward}];
  };
  while (left > 0) {
    bool moved = false;
    const size_t first = random() % lists.size();
    for (size_t turn = 0; turn < lists.size(); ++turn) {
      const auto rank = static_cast<int>((first + turn) % lists.size());
      while (next[rank] < lists[rank].size()) {
        const LoweredAction& a = lists[rank][next[rank]];
        const int tag = transfer_tag(a, schedule.microbatches);
        if (is_send(a.step)) link(rank, a).sent.push_back(tag);
        if (is_post(a.step)) link(rank, a).posted.push_back(tag);
        if (is_wait(a.step)) {
          const Channel& from = link(rank, a);
          const auto at = std::find(from.posted.begin(), from.posted.end(), tag);
          ASSERT_NE(at, from.posted.end()) << to_string(a);
          if (from.moved <= static_cast<size_t>(at - from.posted.begin())) break;
        }
        ++next[rank], --left;
        moved = true;
        if (random() % 4 == 0) break;
      }
    }
    // Some of the channels move one message.
    for (auto& [key, channel] : channels) {
      if (channel.moved == std::min(channel.sent.size(), channel.posted.size())) continue;
      if (moved && random() % 2) continue;
      ASSERT_EQ(channel.sent[channel.moved], channel.posted[channel.moved]);
      ++channel.moved;
      moved = true;
    }
    ASSERT_TRUE(moved) << "deadlock";
  }
}

}  // namespace trident
