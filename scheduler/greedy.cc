#include "scheduler/greedy.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

namespace trident {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

// The simulation behind greedy().
class Greedy {
 public:
  Greedy(const SearchProblem& problem, const GreedyRule& rule)
      : problem_(problem),
        schedule_(problem.empty),
        times_(problem.times),
        rule_(rule),
        stages_(schedule_.total_stages()),
        ranks_(schedule_.stages) {
    schedule_.ranks.assign(schedule_.stages, {});
    for (Stage& stage : stages_) {
      stage.input.assign(schedule_.microbatches, never);
      stage.gradient.assign(schedule_.microbatches, never);
    }
    std::fill(stages_.front().input.begin(), stages_.front().input.end(), 0.0);
    for (int rank = 0; rank < schedule_.stages; ++rank) {
      for (int stage : schedule_.placement[rank]) stages_[stage].rank = rank;
    }
  }

  // Nullopt where the memory limit stops the pipeline.
  std::optional<Schedule> run() {
    for (int rank = 0; rank < schedule_.stages; ++rank) wake(rank, 0.0);
    size_t left = 3 * stages_.size() * schedule_.microbatches;
    while (!events_.empty()) {
      const auto [time, rank] = events_.top();
      events_.pop();
      Rank& state = ranks_[rank];
      if (time < state.free || time != state.wake) continue;  // superseded by another event
      state.wake = never;
      if (step(rank, time)) --left;
    }
    if (left > 0) return std::nullopt;
    return std::move(schedule_);
  }

 private:
  struct Stage {
    int rank = 0;
    int forwards = 0, inputs = 0, weights = 0;  // done
    std::vector<double> input, gradient;        // time at which each arrives
  };
  struct Rank {
    double free = 0.0, wake = never;
    int forwards = 0, inputs = 0, weights = 0;  // done, over all its stages
    double idle = 0.0;                          // since its first action
    bool last_was_forward = false;
  };

  void wake(int rank, double time) {
    Rank& state = ranks_[rank];
    time = std::max(time, state.free);
    if (time >= state.wake) return;
    state.wake = time;
    events_.emplace(time, rank);
  }

  // The stage whose next action of `kind` is ready first, and when. Among stages ready at `now`,
  // the rule's preference decides.
  std::pair<int, double> next(int rank, Kind kind, double now) const {
    std::pair<int, double> best{-1, never};
    const auto& held = schedule_.placement[rank];
    const bool late =
        kind == Kind::forward ? rule_.late_chunks_forward : rule_.late_chunks_backward;
    for (size_t i = 0; i < held.size(); ++i) {
      const int stage = held[late ? held.size() - 1 - i : i];
      const Stage& s = stages_[stage];
      double there = never;
      if (kind == Kind::forward && s.forwards < schedule_.microbatches) {
        if (!rule_.reserves || stage != held.front() || has_memory(rank)) {
          there = s.input[s.forwards];
        }
      } else if (kind == Kind::backward_input && s.inputs < s.forwards) {
        there = s.gradient[s.inputs];
      } else if (kind == Kind::backward_weight && s.weights < s.inputs) {
        there = 0.0;
      }
      there = std::max(there, now);
      if (there < best.second) best = {stage, there};
    }
    return best;
  }

  bool has_memory(int rank) const {
    const auto& held = schedule_.placement[rank];
    int finished = schedule_.microbatches;
    for (int stage : held) finished = std::min(finished, stages_[stage].weights);
    return (stages_[held.front()].forwards - finished + 1) * schedule_.chunks <=
           problem_.memory_limit[rank];
  }

  // Runs one action, or sleeps until the next input.
  bool step(int rank, double now) {
    Rank& state = ranks_[rank];
    auto forward = next(rank, Kind::forward, now);
    const auto backward = next(rank, Kind::backward_input, now);
    const auto weight = next(rank, Kind::backward_weight, now);
    const bool full = problem_.held(state.forwards + 1, state.inputs, state.weights) >
                      problem_.memory_limit[rank];
    const bool waiting = forward.second <= now;  // for memory
    if (full || state.forwards - state.inputs >= rule_.most_ahead[rank]) forward = {-1, never};
    const bool forward_first =
        rule_.first == GreedyRule::First::forward ||
        (rule_.first == GreedyRule::First::alternate && !state.last_was_forward);
    const auto& one = forward_first ? forward : backward;
    const auto& other = forward_first ? backward : forward;
    const Kind one_kind = forward_first ? Kind::forward : Kind::backward_input;
    const Kind other_kind = forward_first ? Kind::backward_input : Kind::forward;
    if (one.second <= now) return run_action(rank, one_kind, one.first, now);
    if (other.second <= now) return run_action(rank, other_kind, other.first, now);
    const double arrival = std::min(one.second, other.second);
    if (weight.second <= now) {
      const double gap = arrival - now;
      if ((full && waiting) || gap >= times_.backward_weight[weight.first] ||
          state.idle + gap > rule_.idle_budget) {
        return run_action(rank, Kind::backward_weight, weight.first, now);
      }
    }
    if (arrival < never) wake(rank, arrival);
    return false;
  }

  bool run_action(int rank, Kind kind, int stage, double now) {
    Rank& state = ranks_[rank];
    Stage& s = stages_[stage];
    const auto there = [&](int other, double end) {
      return end + (stages_[other].rank == rank ? 0.0 : problem_.transfer);
    };
    if (state.forwards > 0) state.idle += now - state.free;
    double end = now;
    if (kind == Kind::forward) {
      const int i = s.forwards++;
      end += times_.forward[stage];
      schedule_.ranks[rank].push_back({kind, stage, i});
      ++state.forwards;
      if (stage + 1 < std::ssize(stages_)) {
        arrive(stage + 1, stages_[stage + 1].input[i], there(stage + 1, end));
      } else {
        s.gradient[i] = end;
      }
    } else if (kind == Kind::backward_input) {
      const int i = s.inputs++;
      end += times_.backward_input[stage];
      schedule_.ranks[rank].push_back({kind, stage, i});
      ++state.inputs;
      if (stage > 0) arrive(stage - 1, stages_[stage - 1].gradient[i], there(stage - 1, end));
    } else {
      schedule_.ranks[rank].push_back({kind, stage, s.weights++});
      end += times_.backward_weight[stage];
      ++state.weights;
    }
    state.last_was_forward = kind == Kind::forward;
    state.free = end;
    state.wake = never;
    wake(rank, end);
    return true;
  }

  void arrive(int stage, double& slot, double time) {
    slot = time;
    wake(stages_[stage].rank, time);
  }

  const SearchProblem& problem_;
  Schedule schedule_;
  const StageTimes& times_;
  const GreedyRule& rule_;
  std::vector<Stage> stages_;
  std::vector<Rank> ranks_;
  std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>>
      events_;
};

// The number of forwards [p] that keep each rank busy until its first gradient arrives, if the
// later ranks return theirs without delay. `early`: rather one forward too few than a late
// gradient.
std::vector<double> filling_warm_up(const SearchProblem& problem, bool early) {
  const StageTimes& times = problem.times;
  const int p = problem.empty.stages;
  std::vector<double> most(p);
  double begin = 0.0;  // start of the rank's first forward
  for (int rank = 0; rank + 1 < p; ++rank) begin += times.forward[rank] + problem.transfer;
  double gradient = begin + times.forward[p - 1];  // earliest start of its input gradient
  for (int rank = p - 1; rank >= 0; --rank) {
    int count = 1;
    double end = begin + times.forward[rank];
    while (count < problem.empty.microbatches && count + 1 <= problem.memory_limit[rank] &&
           (early ? end + times.forward[rank] <= gradient : end < gradient)) {
      end += times.forward[rank];
      ++count;
    }
    most[rank] = count;
    gradient = std::max(end, gradient) + times.backward_input[rank] + problem.transfer;
    if (rank > 0) begin -= times.forward[rank - 1] + problem.transfer;
  }
  return most;
}

// Several choices of GreedyRule::most_ahead.
std::vector<std::vector<double>> leads(const SearchProblem& problem) {
  const int p = problem.empty.stages, v = problem.empty.chunks;
  std::vector<std::vector<double>> all;
  const auto line = [&](double slope, int more) {
    std::vector<double> most(p);
    for (int rank = 0; rank < p; ++rank) {
      most[rank] = std::max(1.0, std::ceil(slope * (p - rank)) + more) * v;
    }
    all.push_back(std::move(most));
  };
  if (v == 1) {
    all.push_back(filling_warm_up(problem, false));
    all.push_back(filling_warm_up(problem, true));
  }
  line(2.0, 0);
  all.emplace_back(p, never);
  line(1.0, 0);
  line(1.5, 0);
  if (v == 1) line(2.0, -1);
  return all;
}

}  // namespace

std::vector<GreedyRule> greedy_rules(const SearchProblem& problem) {
  using First = GreedyRule::First;
  double work = 0.0;  // mean work of a rank for one micro-batch
  for (std::size_t stage = 0; stage < problem.times.forward.size(); ++stage) {
    work += problem.times.forward[stage] + problem.times.backward_input[stage] +
            problem.times.backward_weight[stage];
  }
  work /= problem.empty.stages;
  const int choices = problem.empty.chunks == 1 ? 1 : 8;
  std::vector<GreedyRule> rules;
  for (const double budget : {0.0, 1e9, 0.25, 1.0, 0.05, 2.0, 4.0}) {
    for (const auto& lead : leads(problem)) {
      for (const First first : {First::backward, First::alternate, First::forward}) {
        for (int choice = 0; choice < choices; ++choice) {
          rules.push_back({.first = first,
                           .idle_budget = budget * work,
                           .most_ahead = lead,
                           .reserves = (choice & 4) != 0,
                           .late_chunks_forward = (choice & 1) == 0,
                           .late_chunks_backward = (choice & 2) == 0});
        }
      }
    }
  }
  return rules;
}

std::optional<Schedule> greedy(const SearchProblem& problem, const GreedyRule& rule) {
  return Greedy(problem, rule).run();
}

}  // namespace trident
