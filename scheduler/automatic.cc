// Searches for a schedule: it tries every other synchronous schedule and lists built greedily in
// time order, shortens the best of them by local search, and keeps the shortest.
#include "scheduler/automatic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "scheduler/greedy.h"
#include "scheduler/local_search.h"
#include "scheduler/lower_bound.h"
#include "scheduler/simulate.h"
#include "scheduler/v_shape.h"

namespace trident {
namespace {

struct Candidate {
  Schedule schedule;
  // The objective, then the other of makespan and span, then memory.
  std::array<double, 3> score{};
};

// The best few candidates by one objective.
class Best {
 public:
  Best(Objective objective, std::size_t kept) : objective_(objective), kept_(kept) {}

  void offer(const Schedule& schedule, const Bubble& bubble, double peak) {
    std::array<double, 3> score{bubble.makespan, bubble.longest_span, peak};
    if (objective_ == Objective::span) std::swap(score[0], score[1]);
    const auto at = std::lower_bound(
        list_.begin(), list_.end(), score,
        [](const Candidate& candidate, const auto& value) { return candidate.score < value; });
    if (at != list_.end() && at->score == score) return;  // usually the same schedule
    if (at - list_.begin() >= std::ssize(list_) && list_.size() >= kept_) return;
    list_.insert(at, {schedule, score});
    if (list_.size() > kept_) list_.pop_back();
  }
  Objective objective() const { return objective_; }
  const std::vector<Candidate>& list() const { return list_; }

 private:
  Objective objective_;
  std::size_t kept_;
  std::vector<Candidate> list_;
};

class Search {
 public:
  explicit Search(const ScheduleRequest& request) : request_(request) {
    if (request.objective != Objective::span) bests_.emplace_back(Objective::makespan, kept);
    if (request.objective != Objective::makespan) bests_.emplace_back(Objective::span, kept);
    const int p = request.stages, m = request.microbatches, v = request.chunks;
    const auto place = [&](int chunks, std::vector<std::vector<int>> placement) {
      problems_.push_back(SearchProblem::of(request, {{}, p, m, chunks, std::move(placement), {}}));
    };
    place(std::max(v, 1), looped_placement(p, std::max(v, 1)));
    if (v == 0 || v == 2) place(2, v_placement(p));
  }

  Schedule run() {
    offer_kinds();
    for (const SearchProblem& problem : problems_) offer_greedy(problem);
    if (bests_.front().list().empty()) {
      throw RequestError(fmt::format(
          "auto finds no schedule of {} stages and {} micro-batches within the limit on "
          "micro-batches in flight; the smallest number found is {}",
          request_.stages, request_.microbatches, least_));
    }
    for (Best& best : bests_) improve(best);
    const Candidate* chosen = nullptr;
    double shortest = 0.0;
    for (const Best& best : bests_) {
      const Candidate& first = best.list().front();
      const double value =
          value_of(request_.objective, first.schedule, times(first.schedule).bubble);
      if (chosen != nullptr && value >= shortest) continue;
      chosen = &first;
      shortest = value;
    }
    return chosen->schedule;
  }

 private:
  static constexpr std::size_t kept = 3;  // candidates that local search starts from

  Simulation times(const Schedule& schedule) const {
    const SearchProblem problem = SearchProblem::of(request_, {.stages = schedule.stages,
                                                               .microbatches = 1,
                                                               .chunks = schedule.chunks,
                                                               .placement = schedule.placement});
    return simulate(schedule, problem.times, request_.transfer);
  }

  void offer(const Schedule& schedule) {
    const MemoryLimit& memory = request_.memory;
    const std::vector<double> peaks = peak_in_flight(schedule, memory.kept_for_weights);
    const double peak = *std::max_element(peaks.begin(), peaks.end());
    least_ = std::min(least_, peak);
    for (int rank = 0; rank < schedule.stages && !memory.unlimited(); ++rank) {
      if (peaks[rank] > memory.of(rank) + 1e-9) return;
    }
    const Bubble bubble = times(schedule).bubble;
    for (Best& best : bests_) best.offer(schedule, bubble, peak);
  }

  void offer_kinds() {
    for (const ScheduleKind& kind : registry_of(request_)) {
      if (kind.searched || !kind.flushed) continue;
      try {
        offer(make_schedule({.kind = kind.name,
                             .stages = request_.stages,
                             .microbatches = request_.microbatches,
                             .chunks = request_.chunks,
                             .registry = request_.registry}));
      } catch (const RequestError&) {
        continue;  // the schedule can't run these sizes
      }
    }
  }

  void offer_greedy(const SearchProblem& problem) {
    // Building a list costs about four times its simulation.
    const double cost = 4.0 * 3.0 * problem.empty.total_stages() * problem.empty.microbatches;
    Effort effort(request_.search_seconds, 0.4 / static_cast<double>(problems_.size()));
    bool first = true;
    for (const GreedyRule& rule : greedy_rules(problem)) {
      if (!effort.spend(cost) && !first) break;
      first = false;
      if (const auto found = greedy(problem, rule)) offer(*found);
    }
  }

  void improve(Best& best) {
    std::vector<Candidate> begun;  // a copy: offer() changes the list
    begun.insert(begun.end(), best.list().begin(), best.list().end());
    double part = 0.6 / static_cast<double>(bests_.size());
    for (const Candidate& candidate : begun) {
      const auto problem =
          std::find_if(problems_.begin(), problems_.end(), [&](const SearchProblem& one) {
            return one.empty.placement == candidate.schedule.placement;
          });
      if (problem == problems_.end()) continue;
      const LowerBounds bounds = lower_bounds(*problem);
      const bool span = best.objective() == Objective::span;
      const double bound = span ? bounds.span : bounds.makespan;
      if (best.list().front().score[0] <= bound * (1 + 1e-9)) continue;
      part /= 2;
      Effort effort(request_.search_seconds, part);
      offer(local_search(*problem, candidate.schedule, best.objective(), bound, effort));
    }
  }

  const ScheduleRequest& request_;
  std::vector<SearchProblem> problems_;  // one for each placement
  std::vector<Best> bests_;              // one by makespan, one by span
  double least_ = std::numeric_limits<double>::infinity();
};

}  // namespace

Schedule automatic(const ScheduleRequest& request) {
  return Search(request).run();
}

}  // namespace trident
