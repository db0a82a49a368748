// What the schedules over a V share: rank r holds stage r (chunk 0) on the way down and stage
// 2p-1-r (chunk 1) on the way back, so that the last stage's neighbour is itself and the first and
// the last stage are one rank's.
#pragma once

#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "scheduler/action.h"

namespace trident {

std::vector<std::vector<int>> v_placement(int stages);

// Writes one rank's list; each kind of each chunk takes the micro-batches in order. Those from
// `microbatches` on are counted, but not written.
class VActions {
 public:
  VActions(std::vector<int> held, int microbatches)
      : held_(std::move(held)), microbatches_(microbatches) {}

  // A full backward counts as both its halves.
  void add(Kind kind, int chunk);
  // A forward and a full backward in one cell.
  void add_pair(int forward_chunk, int backward_chunk);
  // The weight gradient whose input gradient (added by itself) is the oldest; none: nothing.
  void add_oldest_weight();

  int count(Kind kind, int chunk) const { return counts_[chunk][static_cast<size_t>(kind)]; }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  std::vector<int> held_;
  int microbatches_;
  std::array<std::array<int, 4>, 2> counts_{};  // [chunk][kind]
  std::deque<std::pair<int, int>> waiting_;     // chunk, micro-batch
  std::vector<Action> actions_;
};

}  // namespace trident
