// The common part of the schedules over a V. Rank r holds stage r (chunk 0) on the way down and
// stage 2p-1-r (chunk 1) on the way back. So the last rank holds two neighbouring stages, and rank
// 0 holds the first and the last stage.
#pragma once

#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "scheduler/action.h"

namespace trident {

std::vector<std::vector<int>> v_placement(int stages);

// Writes one rank's list. Each kind of each chunk takes the micro-batches in order. Micro-batches
// from `microbatches` on are counted but not written.
class VActions {
 public:
  VActions(std::vector<int> held, int microbatches)
      : held_(std::move(held)), microbatches_(microbatches) {}

  // A full backward counts as both its halves.
  void add(Kind kind, int chunk);
  // Adds a forward and a full backward in one cell.
  void add_pair(int forward_chunk, int backward_chunk);
  // Adds the weight gradient of the oldest input gradient that was added alone; does nothing if
  // none is left.
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
