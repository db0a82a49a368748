#include "scheduler/lower_bound.h"

#include <algorithm>
#include <cmath>

namespace trident {
namespace {

class Bounds {
 public:
  explicit Bounds(const SearchProblem& problem)
      : problem_(problem),
        times_(problem.times),
        m_(problem.empty.microbatches),
        stages_(problem.empty.total_stages()),
        rank_of_(stages_) {
    for (int rank = 0; rank < problem.empty.stages; ++rank) {
      for (int stage : problem.empty.placement[rank]) rank_of_[stage] = rank;
    }
  }

  LowerBounds run() const {
    LowerBounds bounds;
    for (int rank = 0; rank < problem_.empty.stages; ++rank) {
      const Share share = share_of(rank);
      const double head = forwards(0, share.first);
      double busy = share.work() + idle(share);
      for (int other = 0; other < problem_.empty.stages; ++other) {
        const Share last = share_of(other);
        if (last.first <= share.first) continue;
        busy = std::max(busy, forwards(share.first, last.first) + until_last_input(last) +
                                  inputs(last.first, share.first) +
                                  times_.backward_weight[share.first]);
      }
      bounds.span = std::max(bounds.span, busy);
      bounds.makespan = std::max(bounds.makespan, head + busy);
    }
    return bounds;
  }

 private:
  // The stages of a rank, and their times.
  struct Share {
    int first = 0, last = 0;                                         // stages
    int count = 0;                                                   // of chunk forwards
    double memory_limit = 0.0;                                       // memory, in chunk forwards
    double forward = 0.0, input = 0.0, weight = 0.0;                 // of all micro-batches
    double most_forward = 0.0, most_input = 0.0, most_weight = 0.0;  // of one chunk
    double least_weight = 0.0;
    double work() const { return forward + input + weight; }
  };

  Share share_of(int rank) const {
    const auto& held = problem_.empty.placement[rank];
    Share share;
    share.first = *std::min_element(held.begin(), held.end());
    share.last = *std::max_element(held.begin(), held.end());
    share.count = m_ * static_cast<int>(held.size());
    share.memory_limit = std::min<double>(problem_.memory_limit[rank], share.count);
    share.least_weight = times_.backward_weight[share.first];
    for (int stage : held) {
      share.forward += m_ * times_.forward[stage];
      share.input += m_ * times_.backward_input[stage];
      share.weight += m_ * times_.backward_weight[stage];
      share.most_forward = std::max(share.most_forward, times_.forward[stage]);
      share.most_input = std::max(share.most_input, times_.backward_input[stage]);
      share.most_weight = std::max(share.most_weight, times_.backward_weight[stage]);
      share.least_weight = std::min(share.least_weight, times_.backward_weight[stage]);
    }
    return share;
  }

  double hop(int stage) const {
    return rank_of_[stage] == rank_of_[stage + 1] ? 0.0 : problem_.transfer;
  }
  // From the start of stage `from`'s forward to the earliest start of `to`'s.
  double forwards(int from, int to) const {
    double sum = 0.0;
    for (int stage = from; stage < to; ++stage) sum += times_.forward[stage] + hop(stage);
    return sum;
  }
  // From the end of stage `from`'s input gradient to the end of `to`'s, to <= from.
  double inputs(int from, int to) const {
    double sum = 0.0;
    for (int stage = from - 1; stage >= to; --stage) {
      sum += times_.backward_input[stage] + hop(stage);
    }
    return sum;
  }
  // From the end of a stage's forward to the earliest start of its input gradient.
  double there_and_back(int stage) const {
    double sum = 0.0;
    for (int s = stage; s + 1 < stages_; ++s) {
      sum += 2 * hop(s) + times_.forward[s + 1] + times_.backward_input[s + 1];
    }
    return sum;
  }

  // Before its first input gradient a rank can run only forwards, as many as fit its memory.
  double idle_at_first(const Share& share) const {
    const double comes =
        forwards(share.first, share.last) + times_.forward[share.last] + there_and_back(share.last);
    return std::max(0.0, comes - std::floor(share.memory_limit) * share.most_forward);
  }

  // Between its last forward and that micro-batch's input gradient a rank can run only the
  // gradients of the micro-batches that it still holds.
  double idle_after_forwards(const Share& share) const {
    const double away = there_and_back(share.last);
    const double kept = problem_.kept_for_weights;
    const double memory_limit = share.memory_limit - 1.0;
    const int most = share.count - 1;
    // x chunks with both gradients to run, y with only the weight gradient: x + kept*y <=
    // memory_limit, x + y <= most.
    const double both = share.most_input + share.most_weight;
    const double x_alone = std::min<double>(memory_limit, most);
    double busy = x_alone * both;
    if (kept < 1.0) {
      const double y_alone = kept > 0.0 ? std::min<double>(most, memory_limit / kept) : most;
      busy = std::max(busy, y_alone * share.most_weight);
      // The corner of both constraints.
      const double x = (memory_limit - kept * most) / (1.0 - kept);
      if (x >= 0.0 && x <= most) busy = std::max(busy, x * both + (most - x) * share.most_weight);
    }
    return std::max(0.0, away - busy);
  }

  // The sum of both idle times. They can be the same interval where the last forward can come
  // before the first gradient; then the larger.
  double idle(const Share& share) const {
    const double first = idle_at_first(share), after = idle_after_forwards(share);
    return std::floor(share.memory_limit) < share.count ? first + after : std::max(first, after);
  }

  // From a rank's first forward to the end of its last input gradient: all forwards and input
  // gradients, the weight gradients that have to free memory for its last forward, and its idle
  // time.
  double until_last_input(const Share& share) const {
    const double kept = problem_.kept_for_weights;
    const double left = kept > 0.0 ? std::floor((share.memory_limit - 1.0) / kept) : share.count;
    const double done = std::max(0.0, share.count - 1 - left);
    return share.forward + share.input + done * share.least_weight + idle(share);
  }

  const SearchProblem& problem_;
  const StageTimes& times_;
  int m_, stages_;
  std::vector<int> rank_of_;
};

}  // namespace

LowerBounds lower_bounds(const SearchProblem& problem) {
  return Bounds(problem).run();
}

}  // namespace trident
