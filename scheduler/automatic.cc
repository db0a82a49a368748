// Searches for a schedule: tries every other synchronous kind, and lists made greedily in time
// order under a few dozen rules, and keeps the one that ends first.
#include "scheduler/automatic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "core/error.h"
#include "scheduler/simulate.h"
#include "scheduler/v_shape.h"

namespace trident {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

// What a rank does when it may choose.
struct Rule {
  enum class First : uint8_t { backward, forward, alternate } first = First::backward;
  // A weight gradient is taken where no input comes within this part of its time; 0: at once.
  double patience = 0.0;
  // Rank r has at most ceil(lead * (p-r)) micro-batches' worth forward and not yet backward.
  double lead = 1.0;
  // A micro-batch begins only where its rank has room for all its chunks.
  bool reserves = false;
  bool late_chunks_forward = false;  // of two chunks that could run, the later one
  bool late_chunks_backward = false;
};

// Runs the pipeline in time order; each rank, when it is free, takes what the rule prefers among
// what is there. Micro-batches of a stage go in order, in each of F, I and W.
class Greedy {
 public:
  Greedy(Schedule schedule, const StageTimes& times, double transfer, int most_held,
         const Rule& rule)
      : schedule_(std::move(schedule)),
        times_(times),
        transfer_(transfer),
        most_held_(most_held),
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
      ranks_[rank].most_ahead = std::min<double>(
          most_held_, std::ceil(rule_.lead * (schedule_.stages - rank)) * schedule_.chunks);
    }
  }

  // None where the memory limit makes it stop.
  std::optional<Schedule> run() {
    for (int rank = 0; rank < schedule_.stages; ++rank) wake(rank, 0.0);
    size_t left = 3 * stages_.size() * schedule_.microbatches;
    while (!events_.empty()) {
      const auto [time, rank] = events_.top();
      events_.pop();
      Rank& state = ranks_[rank];
      if (time < state.free || time != state.wake) continue;  // a later call or an older one
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
    std::vector<double> input, gradient;        // when each is there
  };
  struct Rank {
    double free = 0.0, wake = never;
    int held = 0;   // F done and W not
    int ahead = 0;  // F done and I not
    double most_ahead = 0.0;
    bool last_was_forward = false;
  };

  void wake(int rank, double time) {
    Rank& state = ranks_[rank];
    time = std::max(time, state.free);
    if (time >= state.wake) return;
    state.wake = time;
    events_.emplace(time, rank);
  }

  // The chunk whose next action of `kind` is there first, and when; by preference among those there
  // at `now`.
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
        if (!rule_.reserves || stage != held.front() || has_room(rank)) {
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

  bool has_room(int rank) const {
    const auto& held = schedule_.placement[rank];
    int finished = schedule_.microbatches;
    for (int stage : held) finished = std::min(finished, stages_[stage].weights);
    return (stages_[held.front()].forwards - finished + 1) * schedule_.chunks <= most_held_;
  }

  // Takes one action, or waits for the next input.
  bool step(int rank, double now) {
    Rank& state = ranks_[rank];
    auto forward = next(rank, Kind::forward, now);
    const auto backward = next(rank, Kind::backward_input, now);
    const auto weight = next(rank, Kind::backward_weight, now);
    const bool full = state.held >= most_held_;
    if (full || state.ahead >= state.most_ahead) forward = {-1, never};
    const bool forward_first = rule_.first == Rule::First::forward ||
                               (rule_.first == Rule::First::alternate && !state.last_was_forward);
    const auto& one = forward_first ? forward : backward;
    const auto& other = forward_first ? backward : forward;
    const Kind one_kind = forward_first ? Kind::forward : Kind::backward_input;
    const Kind other_kind = forward_first ? Kind::backward_input : Kind::forward;
    if (one.second <= now) return run_action(rank, one_kind, one.first, now);
    if (other.second <= now) return run_action(rank, other_kind, other.first, now);
    const double arrival = std::min(one.second, other.second);
    if (weight.second <= now) {
      const double length = times_.backward_weight[weight.first];
      if (full || arrival >= now + rule_.patience * length) {
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
      return end + (stages_[other].rank == rank ? 0.0 : transfer_);
    };
    double end = now;
    if (kind == Kind::forward) {
      const int i = s.forwards++;
      end += times_.forward[stage];
      schedule_.ranks[rank].push_back({kind, stage, i});
      ++state.held, ++state.ahead;
      if (stage + 1 < std::ssize(stages_)) {
        arrive(stage + 1, stages_[stage + 1].input[i], there(stage + 1, end));
      } else {
        s.gradient[i] = end;
      }
    } else if (kind == Kind::backward_input) {
      const int i = s.inputs++;
      end += times_.backward_input[stage];
      schedule_.ranks[rank].push_back({kind, stage, i});
      --state.ahead;
      if (stage > 0) arrive(stage - 1, stages_[stage - 1].gradient[i], there(stage - 1, end));
    } else {
      schedule_.ranks[rank].push_back({kind, stage, s.weights++});
      end += times_.backward_weight[stage];
      --state.held;
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

  Schedule schedule_;
  const StageTimes& times_;
  double transfer_;
  int most_held_;  // in chunks
  Rule rule_;
  std::vector<Stage> stages_;
  std::vector<Rank> ranks_;
  std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>>
      events_;
};

std::vector<Rule> rules(int chunks) {
  std::vector<Rule> list;
  for (const double lead : {1e9, 2.0, 1.5, 1.0}) {
    for (const double patience : {0.0, 1.0, 0.5}) {
      for (const auto first :
           {Rule::First::backward, Rule::First::alternate, Rule::First::forward}) {
        for (int choice = 0; choice < (chunks == 1 ? 1 : 8); ++choice) {
          list.push_back(
              {first, patience, lead, (choice & 4) != 0, (choice & 1) == 0, (choice & 2) == 0});
        }
      }
    }
  }
  return list;
}

StageTimes times_of(const Schedule& schedule, const ScheduleRequest& request) {
  const bool known = std::ssize(request.stage_times.forward) == schedule.total_stages();
  return known ? request.stage_times : stage_times(schedule, request.times);
}

// Keeps the best: shortest makespan, then shortest span of a rank, then least memory.
class Best {
 public:
  explicit Best(const ScheduleRequest& request)
      : request_(request), transfer_(request.transfer), limit_(request.max_in_flight) {}

  void offer(Schedule schedule) {
    const std::vector<double> peaks = peak_in_flight(schedule);
    const double peak = *std::max_element(peaks.begin(), peaks.end());
    least_ = std::min(least_, peak);
    if (limit_ > 0.0 && peak > limit_) return;
    const Bubble bubble = simulate(schedule, times_of(schedule, request_), transfer_).bubble;
    const Score score{bubble.makespan, bubble.longest_span, peak};
    if (best_ && !(score < score_)) return;
    score_ = score;
    best_ = std::move(schedule);
  }
  const std::optional<Schedule>& schedule() const { return best_; }
  double least() const { return least_; }

 private:
  using Score = std::array<double, 3>;
  const ScheduleRequest& request_;
  double transfer_, limit_;
  Score score_{};
  double least_ = never;
  std::optional<Schedule> best_;
};

}  // namespace

Schedule automatic(const ScheduleRequest& request) {
  const int p = request.stages, m = request.microbatches;
  Best best(request);
  for (const ScheduleKind& kind : kinds_of(request)) {
    if (kind.searched || !kind.flushed) continue;
    Schedule schedule;
    try {
      schedule = make_schedule({.kind = kind.name,
                                .stages = p,
                                .microbatches = m,
                                .chunks = request.chunks,
                                .kinds = request.kinds});
    } catch (const RequestError&) {
      continue;  // not with these sizes
    }
    best.offer(std::move(schedule));
  }
  std::vector<Schedule> placements;  // without actions
  const int v = request.chunks;
  if (v != 2)
    placements.push_back({{}, p, m, std::max(v, 1), looped_placement(p, std::max(v, 1)), {}});
  if (v == 2) placements.push_back({{}, p, m, 2, looped_placement(p, 2), {}});
  if (v == 0 || v == 2) placements.push_back({{}, p, m, 2, v_placement(p), {}});
  // The number of lists tried falls with their size, so that the search ends in seconds.
  constexpr double most_actions = 2e7;
  for (const Schedule& empty : placements) {
    const StageTimes times = times_of(empty, request);
    const double limit = request.max_in_flight > 0.0 ? request.max_in_flight : m;
    const int most_held = static_cast<int>(std::min<double>(limit, m) * empty.chunks);
    double actions = 0.0;
    for (const Rule& rule : rules(empty.chunks)) {
      actions += 3.0 * empty.total_stages() * m;
      if (actions > most_actions && actions > 3.0 * empty.total_stages() * m) break;
      if (auto found = Greedy(empty, times, request.transfer, most_held, rule).run()) {
        best.offer(std::move(*found));
      }
    }
  }
  if (!best.schedule()) {
    throw RequestError(fmt::format(
        "auto finds no schedule of {} stages and {} micro-batches that holds at most {} in flight; "
        "the least found is {}",
        p, m, request.max_in_flight, best.least()));
  }
  return *best.schedule();
}

}  // namespace trident
