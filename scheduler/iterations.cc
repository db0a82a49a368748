#include "scheduler/iterations.h"

#include <algorithm>

#include "scheduler/lower.h"
#include "scheduler/schedules.h"

namespace trident {

IterationLists::IterationLists(const Schedule& schedule, std::int64_t iterations,
                               std::int64_t begun)
    : iterations_(iterations), in_flight_(static_cast<std::size_t>(schedule.stages)) {
  if (!schedule.asynchronous()) {
    iterations_ = 1;
    distinct_.push_back({schedule, lower(schedule)});
    return;
  }
  const int p = schedule.stages, m = schedule.microbatches;
  tail_ = (p - 1 + m - 1) / m;
  // After this number of iterations the actions in flight, and the backwards since, no longer
  // change.
  before_ = std::min<std::int64_t>(begun, (p + m - 1) / m + 1);
  iterations += before_;
  const auto count = static_cast<int>(std::min<std::int64_t>(iterations, 3 + tail_));
  const Schedule run = one_f_one_b(p, m * count);
  distinct_.resize(count);
  for (Iteration& iteration : distinct_) {
    iteration.schedule = schedule;
    iteration.schedule.ranks.assign(p, {});
    iteration.lists.resize(p);
  }
  for (int rank = 0; rank < p; ++rank) {
    int at = 0;
    bool ends = false;  // the iteration ends once the last backward's sends are listed
    for (LoweredAction action : lower_rank(run, rank)) {
      if (ends && !is_send(action.step)) {
        ++at;
        ends = false;
      }
      const bool compute = action.step == Step::compute;
      ends = ends || (compute && action.kind == Kind::backward && at + 1 < count &&
                      action.microbatch == (at + 1) * m - 1);
      action.microbatch -= at * m;
      Schedule& own = distinct_[at].schedule;
      own.microbatches = std::max(own.microbatches, action.microbatch + 1);
      distinct_[at].lists[rank].push_back(action);
      if (compute) own.ranks[rank].push_back({action.kind, action.stage, action.microbatch});
    }
  }
  find_in_flight(schedule);
}

void IterationLists::find_in_flight(const Schedule& schedule) {
  const int p = schedule.stages, m = schedule.microbatches;
  for (int rank = 0; rank < p; ++rank) {
    InFlight& found = in_flight_[rank];
    for (std::int64_t k = 0; k < before_; ++k) {
      for (LoweredAction action : counted(k).lists[rank]) {
        action.microbatch -= static_cast<int>((before_ - k) * m);
        const bool compute = action.step == Step::compute;
        if (compute && action.kind == Kind::backward) {
          for (std::int64_t& since : found.backwards_since) ++since;
        }
        if (action.microbatch < 0) continue;
        found.actions.push_back(action);
        if (compute) found.backwards_since.push_back(0);
      }
    }
  }
}

const IterationLists::Iteration& IterationLists::counted(std::int64_t k) const {
  const std::int64_t all = iterations_ + before_;
  if (all == 1) return distinct_.front();
  const auto count = static_cast<std::int64_t>(distinct_.size());
  if (count == all) return distinct_[k];
  // The iteration before the tail is the last of the equal ones: it posts the tail's first
  // receives.
  const std::int64_t left = all - 1 - k;
  return distinct_[k == 0 ? 0 : left <= tail_ ? count - 1 - left : 1];
}

const IterationLists::Iteration& IterationLists::of(std::int64_t k) const {
  return counted(before_ + k);
}

}  // namespace trident
