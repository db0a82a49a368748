#include "scheduler/local_search.h"

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <utility>

namespace trident {
namespace {

// Times lists that change by one action at a time. Cells are numbered (kind, stage, micro-batch).
class ListTimer {
 public:
  ListTimer(const SearchProblem& problem, const Schedule& schedule)
      : problem_(problem),
        microbatches_(schedule.microbatches),
        stages_(schedule.total_stages()),
        end_(static_cast<std::size_t>(3) * stages_ * microbatches_),
        rank_of_(stages_),
        position_(schedule.stages),
        begin_(schedule.stages),
        finish_(schedule.stages),
        waiter_(end_.size(), -1) {
    for (int rank = 0; rank < schedule.stages; ++rank) {
      for (int stage : schedule.placement[rank]) rank_of_[stage] = rank;
    }
  }

  struct Cost {
    double objective = 0.0, secondary = 0.0;
    // The objective alone has plateaus: it is equal for all ranks that reach the maximum.
    double total() const { return objective + 0.01 * secondary; }
  };

  // False if the lists deadlock.
  bool run(const std::vector<std::vector<Action>>& ranks, Objective objective, Cost& cost) {
    const int p = static_cast<int>(ranks.size());
    std::fill(end_.begin(), end_.end(), -1.0);
    std::fill(waiter_.begin(), waiter_.end(), -1);
    std::fill(position_.begin(), position_.end(), 0);
    ready_.clear();
    for (int rank = p - 1; rank >= 0; --rank) ready_.push_back(rank);
    std::size_t left = 0;
    for (const auto& actions : ranks) left += actions.size();
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      const auto& actions = ranks[rank];
      std::size_t& at = position_[rank];
      double free = at == 0 ? 0.0 : finish_[rank];
      while (at < actions.size()) {
        const Action& action = actions[at];
        double start = free;
        if (const int source = source_of(action); source >= 0) {
          const std::size_t cell = cell_of(action.kind, source, action.microbatch);
          if (end_[cell] < 0.0) {
            waiter_[cell] = rank;
            break;
          }
          const bool here = rank_of_[source] == rank;
          start = std::max(start, end_[cell] + (here ? 0.0 : problem_.transfer));
        }
        if (at == 0) begin_[rank] = start;
        free = start + length(action);
        const std::size_t cell = cell_of(action.kind, action.stage, action.microbatch);
        end_[cell] = free;
        if (waiter_[cell] >= 0) ready_.push_back(waiter_[cell]);
        ++at;
        --left;
      }
      finish_[rank] = free;
    }
    if (left > 0) return false;
    cost = {};
    for (int rank = 0; rank < p; ++rank) {
      const double value =
          objective == Objective::span ? finish_[rank] - begin_[rank] : finish_[rank];
      if (value > cost.objective) {
        cost.objective = value;
        longest_ = rank;
      }
      cost.secondary += value / p;
    }
    return true;
  }
  int longest() const { return longest_; }

 private:
  int source_of(const Action& action) const {
    if (action.kind == Kind::backward_weight) return -1;
    const int source = action.stage + (action.kind == Kind::forward ? -1 : 1);
    return source < stages_ ? source : -1;
  }
  std::size_t cell_of(Kind kind, int stage, int microbatch) const {
    const std::size_t which = kind == Kind::forward ? 0 : kind == Kind::backward_input ? 1 : 2;
    return (which * stages_ + stage) * microbatches_ + microbatch;
  }
  double length(const Action& action) const {
    const StageTimes& times = problem_.times;
    return (action.kind == Kind::forward          ? times.forward
            : action.kind == Kind::backward_input ? times.backward_input
                                                  : times.backward_weight)[action.stage];
  }

  const SearchProblem& problem_;
  int microbatches_, stages_;
  std::vector<double> end_;  // by cell; -1 if not run yet
  std::vector<int> rank_of_;
  std::vector<std::size_t> position_;
  std::vector<double> begin_, finish_;
  std::vector<int> waiter_;  // the rank waiting for each cell, or -1
  std::vector<int> ready_;
  int longest_ = 0;
};

// Whether `moved` may swap with `passed`, its neighbour before (`earlier`) or after it.
bool may_pass(const Action& moved, const Action& passed, bool earlier) {
  if (moved.stage != passed.stage) {
    // Stages of one rank depend on each other too; the timer finds the lists that this breaks.
    return true;
  }
  if (moved.kind == passed.kind) return false;
  if (moved.microbatch != passed.microbatch) return true;
  const Action& first = earlier ? passed : moved;
  const Action& second = earlier ? moved : passed;
  const auto order = [](Kind kind) {
    return kind == Kind::forward ? 0 : kind == Kind::backward_input ? 1 : 2;
  };
  return order(first.kind) > order(second.kind);  // false for a valid list
}

bool fits(const SearchProblem& problem, std::span<const Action> actions, double memory_limit) {
  int forwards = 0, inputs = 0, weights = 0;
  for (const Action& action : actions) {
    ++(action.kind == Kind::forward          ? forwards
       : action.kind == Kind::backward_input ? inputs
                                             : weights);
    if (problem.held(forwards, inputs, weights) > memory_limit) return false;
  }
  return true;
}

bool is_split(const Schedule& schedule) {
  for (const auto& actions : schedule.ranks) {
    for (const Action& action : actions) {
      if (action.kind == Kind::backward || action.fused) return false;
    }
  }
  return true;
}

}  // namespace

Schedule local_search(const SearchProblem& problem, Schedule begun, Objective objective,
                      double bound, Effort& effort) {
  if (!is_split(begun)) return begun;
  ListTimer timer(problem, begun);
  ListTimer::Cost cost, best_cost;
  auto lists = begun.ranks;
  if (!timer.run(lists, objective, cost)) return begun;
  best_cost = cost;
  auto best = lists;
  double actions = 50.0;  // the cost of a move, with its fixed part
  for (const auto& list : lists) actions += static_cast<double>(list.size());

  std::mt19937_64 random(20240110);
  std::vector<double> history(50, cost.total());
  int longest = timer.longest();
  for (std::size_t move = 0; best_cost.objective > bound * (1 + 1e-9) && effort.spend(actions);
       ++move) {
    // Half of the moves are on the rank that takes longest.
    const int rank = random() % 2 == 0 ? longest : static_cast<int>(random() % lists.size());
    auto& list = lists[rank];
    const auto from = static_cast<std::ptrdiff_t>(random() % list.size());
    const bool earlier = random() % 2 == 0;
    std::ptrdiff_t steps = 1;
    while (steps < 64 && random() % 4 != 0) ++steps;
    std::ptrdiff_t to = from;
    while (steps-- > 0) {
      const std::ptrdiff_t next = to + (earlier ? -1 : 1);
      if (next < 0 || next >= std::ssize(list) || !may_pass(list[from], list[next], earlier)) break;
      to = next;
    }
    if (to == from) continue;
    const auto shift = [&](std::ptrdiff_t a, std::ptrdiff_t b) {
      const auto at = list.begin();
      if (b < a) {
        std::rotate(at + b, at + a, at + a + 1);
      } else {
        std::rotate(at + a, at + a + 1, at + b + 1);
      }
    };
    shift(from, to);
    ListTimer::Cost now;
    double& late = history[move % history.size()];
    if (fits(problem, list, problem.memory_limit[rank]) && timer.run(lists, objective, now) &&
        (now.total() <= late || now.total() <= cost.total())) {
      cost = now;
      longest = timer.longest();
      if (cost.total() < best_cost.total()) {
        best_cost = cost;
        best = lists;
      }
    } else {
      shift(to, from);
    }
    late = std::min(late, cost.total());
  }
  begun.ranks = std::move(best);
  return begun;
}

}  // namespace trident
