#include "scheduler/search_problem.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace trident {
namespace {

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The number of actions that takes about a second.
constexpr double usual_actions = 3e8;

}  // namespace

SearchProblem SearchProblem::of(const ScheduleRequest& request, Schedule empty) {
  SearchProblem problem;
  const bool known = std::ssize(request.stage_times.forward) == empty.total_stages();
  problem.times = known ? request.stage_times : stage_times(empty, request.times);
  problem.transfer = request.transfer;
  problem.kept_for_weights = request.memory.kept_for_weights;
  for (int rank = 0; rank < empty.stages; ++rank) {
    const double most = request.memory.unlimited() ? empty.microbatches : request.memory.of(rank);
    problem.memory_limit.push_back(std::min<double>(most, empty.microbatches) * empty.chunks +
                                   1e-9);
  }
  problem.empty = std::move(empty);
  return problem;
}

Effort::Effort(double seconds, double part)
    : left_(seconds > 0.0 ? std::numeric_limits<double>::infinity() : usual_actions * part),
      until_(seconds > 0.0 ? now() + static_cast<std::int64_t>(seconds * part * 1e9) : 0) {}

bool Effort::spend(double actions) {
  left_ -= actions;
  return left_ >= 0.0 && (until_ == 0 || now() < until_);
}

}  // namespace trident
