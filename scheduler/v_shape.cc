#include "scheduler/v_shape.h"

namespace trident {

std::vector<std::vector<int>> v_placement(int stages) {
  std::vector<std::vector<int>> placement;
  for (int rank = 0; rank < stages; ++rank) placement.push_back({rank, 2 * stages - 1 - rank});
  return placement;
}

void VActions::add(Kind kind, int chunk) {
  auto& counts = counts_[chunk];
  const auto next = [&](Kind k) { return counts[static_cast<size_t>(k)]++; };
  int microbatch = 0;
  if (kind == Kind::backward) {
    microbatch = next(Kind::backward_input);
    next(Kind::backward_weight);
  } else {
    microbatch = next(kind);
  }
  if (kind == Kind::backward_input) waiting_.push_back({chunk, microbatch});
  if (microbatch < microbatches_) actions_.push_back({kind, held_[chunk], microbatch});
}

void VActions::add_pair(int forward_chunk, int backward_chunk) {
  add(Kind::forward, forward_chunk);
  actions_.back().fused = true;
  add(Kind::backward, backward_chunk);
}

void VActions::add_oldest_weight() {
  if (waiting_.empty()) return;
  const auto [chunk, microbatch] = waiting_.front();
  waiting_.pop_front();
  ++counts_[chunk][static_cast<size_t>(Kind::backward_weight)];
  actions_.push_back({Kind::backward_weight, held_[chunk], microbatch});
}

}  // namespace trident
