#include "scheduler/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"

namespace trident {

namespace {

constexpr double not_done = -1.0;

bool is_weight_gradient(Kind kind) {
  return kind == Kind::backward || kind == Kind::backward_weight;
}

double duration(const StageTimes& times, const Action& action) {
  switch (action.kind) {
    case Kind::forward:
      return times.forward[action.stage];
    case Kind::backward:
      return times.backward_input[action.stage] + times.backward_weight[action.stage];
    case Kind::backward_input:
      return times.backward_input[action.stage];
    case Kind::backward_weight:
      return times.backward_weight[action.stage];
  }
  return 0.0;
}

std::vector<double> by_stage(const Schedule& schedule, const std::vector<double>& shares,
                             char name) {
  const size_t p = schedule.stages;
  if (shares.size() != 1 && shares.size() != p) {
    throw RequestError(fmt::format("times: {} has {} numbers; give 1 or {} (one for each rank)",
                                   name, shares.size(), p));
  }
  for (double share : shares) {
    if (!(share >= 0.0 && share <= std::numeric_limits<double>::max())) {
      throw RequestError(
          fmt::format("times: {} = {} has to be a finite number, 0 or more", name, share));
    }
  }
  std::vector<double> times(schedule.total_stages());
  for (size_t rank = 0; rank < p; ++rank) {
    const double share = shares[shares.size() == 1 ? 0 : rank];
    for (int stage : schedule.placement[rank]) times[stage] = share / schedule.chunks;
  }
  return times;
}

// The event loop. A rank runs until the input of its next action is missing; the action that makes
// this input wakes it. The loop looks at each action once when it runs and once when it first
// waits.
class EventLoop {
 public:
  EventLoop(const Schedule& schedule, TransferTimes transfers)
      : schedule_(schedule),
        transfers_(std::move(transfers)),
        rank_of_(schedule.total_stages()),
        forward_end_(cells(), 0.0),
        backward_end_(cells(), 0.0),
        waiter_(2 * cells(), -1) {
    for (int rank = 0; rank < schedule.stages; ++rank) {
      for (int stage : schedule.placement[rank]) rank_of_[stage] = rank;
      // An input that no list makes was made before (an iteration of an asynchronous run).
      for (const Action& action : schedule.ranks[rank]) {
        if (action.kind == Kind::backward_weight) continue;
        (action.kind == Kind::forward ? forward_end_
                                      : backward_end_)[cell(action.stage, action.microbatch)] =
            not_done;
      }
    }
  }

  // Calls `duration_of(rank, position)` once for each action.
  template <typename DurationOf>
  std::vector<std::vector<TimedAction>> run(DurationOf duration_of) {
    const int p = schedule_.stages;
    std::vector<std::vector<TimedAction>> timed(p);
    std::vector<int> ready;
    for (int rank = 0; rank < p; ++rank) {
      timed[rank].reserve(schedule_.ranks[rank].size());
      ready.push_back(rank);
    }
    while (!ready.empty()) {
      const int rank = ready.back();
      ready.pop_back();
      auto& done = timed[rank];
      const auto& actions = schedule_.ranks[rank];
      while (done.size() < actions.size()) {
        const size_t first = done.size(), count = actions[first].fused ? 2 : 1;
        double end = done.empty() ? 0.0 : done.back().end;
        bool there = true;
        for (size_t i = first; i < first + count; ++i) {
          const double arrival = input_arrival(actions[i], rank);
          there = there && arrival != not_done;
          end = std::max(end, arrival);
        }
        if (!there) break;
        for (size_t i = first; i < first + count; ++i) {
          const double start = end;
          end += duration_of(rank, i);
          done.push_back({start, end});
        }
        for (size_t i = first; i < first + count; ++i) {
          if (const int woken = finish(actions[i], end); woken >= 0) ready.push_back(woken);
        }
      }
    }
    for (int rank = 0; rank < p; ++rank) {
      if (timed[rank].size() == schedule_.ranks[rank].size()) continue;
      throw Error(fmt::format(
          "schedule {}: rank {} never gets the input of {} (position {})", schedule_.kind, rank,
          to_string(schedule_.ranks[rank][timed[rank].size()]), timed[rank].size()));
    }
    return timed;
  }

 private:
  size_t cells() const {
    return static_cast<size_t>(schedule_.total_stages()) * schedule_.microbatches;
  }

  size_t cell(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * schedule_.microbatches + microbatch;
  }

  // The time at which the input arrives. It is not_done if the maker has not run; the maker will
  // wake `rank`.
  double input_arrival(const Action& action, int rank) {
    if (action.kind == Kind::backward_weight) return 0.0;
    const bool forward = action.kind == Kind::forward;
    const int source = action.stage + (forward ? -1 : 1);
    if (source < 0 || source >= schedule_.total_stages()) return 0.0;
    const size_t at = cell(source, action.microbatch);
    const double end = (forward ? forward_end_ : backward_end_)[at];
    if (end == not_done) {
      waiter_[2 * at + (forward ? 0 : 1)] = rank;
      return not_done;
    }
    return end + (rank_of_[source] == rank
                      ? 0.0
                      : (forward ? transfers_.forward : transfers_.backward)[source]);
  }

  // Returns the rank that waits for this action, or -1.
  int finish(const Action& action, double end) {
    if (action.kind == Kind::backward_weight) return -1;
    const bool forward = action.kind == Kind::forward;
    const size_t at = cell(action.stage, action.microbatch);
    (forward ? forward_end_ : backward_end_)[at] = end;
    return waiter_[2 * at + (forward ? 0 : 1)];
  }

  const Schedule& schedule_;
  TransferTimes transfers_;
  std::vector<int> rank_of_;                        // by stage
  std::vector<double> forward_end_, backward_end_;  // [stage][micro-batch]
  std::vector<int> waiter_;                         // [stage][micro-batch][F, B]
};

TransferTimes everywhere(const Schedule& schedule, double transfer) {
  const std::vector<double> times(schedule.total_stages(), transfer);
  return {times, times};
}

}  // namespace

StageTimes stage_times(const Schedule& schedule, const ShareTimes& times) {
  return {by_stage(schedule, times.forward, 'F'), by_stage(schedule, times.backward_input, 'B'),
          by_stage(schedule, times.backward_weight, 'W')};
}

Simulation simulate(const Schedule& schedule, const StageTimes& times, double transfer) {
  Simulation result;
  result.actions =
      EventLoop(schedule, everywhere(schedule, transfer)).run([&](int rank, size_t position) {
        return duration(times, schedule.ranks[rank][position]);
      });
  result.bubble = bubble_of(schedule, result.actions);
  return result;
}

Simulation replay(const Schedule& schedule, const std::vector<std::vector<double>>& durations,
                  double transfer) {
  return replay(schedule, durations, everywhere(schedule, transfer));
}

Simulation replay(const Schedule& schedule, const std::vector<std::vector<double>>& durations,
                  const TransferTimes& transfers) {
  for (int rank = 0; rank < schedule.stages; ++rank) {
    const size_t got = rank < std::ssize(durations) ? durations[rank].size() : 0;
    if (got != schedule.ranks[rank].size()) {
      throw Error(fmt::format("replay: rank {} has {} durations for {} actions", rank, got,
                              schedule.ranks[rank].size()));
    }
  }
  Simulation result;
  result.actions = EventLoop(schedule, transfers).run([&](int rank, size_t position) {
    return durations[rank][position];
  });
  result.bubble = bubble_of(schedule, result.actions);
  return result;
}

std::vector<IdleTime> idle_by_reason(const Schedule& schedule, const Simulation& simulation) {
  const auto m = static_cast<size_t>(schedule.microbatches);
  const auto cell = [m](int stage, int microbatch) { return stage * m + microbatch; };
  // When, and on which rank, each forward and each gradient of an input was made.
  std::vector<double> forward(schedule.total_stages() * m), backward(forward.size());
  std::vector<int> rank_of(schedule.total_stages());
  const auto each = [&](auto visit) {
    for (int rank = 0; rank < schedule.stages; ++rank) {
      const auto& actions = schedule.ranks[rank];
      for (size_t i = 0; i < actions.size(); ++i) {
        // A pair's outputs are available at its end.
        const TimedAction& last = simulation.actions[rank][actions[i].fused ? i + 1 : i];
        visit(rank, i, actions[i], last.end);
      }
    }
  };
  each([&](int rank, size_t, const Action& action, double end) {
    rank_of[action.stage] = rank;
    if (action.kind == Kind::backward_weight) return;
    (action.kind == Kind::forward ? forward : backward)[cell(action.stage, action.microbatch)] =
        end;
  });
  std::vector<IdleTime> idle(schedule.stages);
  for (int rank = 0; rank < schedule.stages; ++rank) {
    const auto& actions = schedule.ranks[rank];
    const auto& timed = simulation.actions[rank];
    const auto is_forward = [](const Action& a) { return a.kind == Kind::forward; };
    const auto first_backward = std::find_if_not(actions.begin(), actions.end(), is_forward);
    const auto after_forwards = std::find_if(actions.rbegin(), actions.rend(), is_forward).base();
    double previous = 0.0;
    for (size_t i = 0; i < actions.size(); previous = timed[i].end, ++i) {
      double gap = timed[i].start - previous;
      if (gap <= 0.0) continue;
      // A pair waits for the later of its inputs.
      double made = timed[i].start;
      bool waits = false;
      for (size_t k = i; k < i + (actions[i].fused ? 2 : 1); ++k) {
        const Action& action = actions[k];
        if (action.kind == Kind::backward_weight) continue;
        const int source = action.stage + (action.kind == Kind::forward ? -1 : 1);
        if (source < 0 || source >= schedule.total_stages() || rank_of[source] == rank) continue;
        const double at =
            (action.kind == Kind::forward ? forward : backward)[cell(source, action.microbatch)];
        made = waits ? std::max(made, at) : at;
        waits = true;
      }
      const double on_its_way = timed[i].start - std::clamp(made, previous, timed[i].start);
      idle[rank].transfer += on_its_way;
      gap -= on_its_way;
      const auto here = actions.begin() + static_cast<std::ptrdiff_t>(i);
      (here <= first_backward   ? idle[rank].warmup
       : here >= after_forwards ? idle[rank].drain
                                : idle[rank].steady) += gap;
    }
    idle[rank].drain += simulation.bubble.makespan - previous;
  }
  return idle;
}

Bubble bubble_of(const Schedule& schedule, const std::vector<std::vector<TimedAction>>& ranks) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  struct Interval {
    double begin = infinity, end = -infinity;
    void add(double from, double to) {
      begin = std::min(begin, from);
      end = std::max(end, to);
    }
    double length() const { return std::max(0.0, end - begin); }
  };
  Interval all, counted_all;  // counted: the intervals that a bubble counts
  std::vector<Interval> counted(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (size_t i = 0; i < ranks[rank].size(); ++i) {
      const auto [start, end] = ranks[rank][i];
      all.add(start, end);
      if (!schedule.asynchronous()) {
        counted[rank].add(start, end);
      } else if (is_weight_gradient(schedule.ranks[rank][i].kind)) {
        counted[rank].add(end, end);
      }
    }
    counted_all.add(counted[rank].begin, counted[rank].end);
  }
  Bubble bubble;
  bubble.makespan = all.length();
  for (const Interval& span : counted) {
    bubble.longest_span = std::max(bubble.longest_span, span.length());
  }
  const auto ratio = [](double total, double own) {
    // Rounding may make a busy rank's work exceed the total.
    return total > 0.0 ? std::max(0.0, (total - own) / total) : 0.0;
  };
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto work = [&](const Interval& within) {
      double sum = 0.0;
      for (const auto& [start, end] : ranks[rank]) {
        sum += std::max(0.0, std::min(end, within.end) - std::max(start, within.begin));
      }
      return sum;
    };
    bubble.rank_ratio.push_back(ratio(counted_all.length(), work(counted_all)));
    bubble.rank_ratio_span.push_back(ratio(bubble.longest_span, work(counted[rank])));
    bubble.ratio += bubble.rank_ratio.back() / static_cast<double>(ranks.size());
    bubble.ratio_span += bubble.rank_ratio_span.back() / static_cast<double>(ranks.size());
  }
  return bubble;
}

std::vector<double> peak_in_flight(const Schedule& schedule, double kept_for_weights) {
  std::vector<double> peaks;
  for (const auto& actions : schedule.ranks) {
    // Two integer counters, so that integers stay exact.
    int whole = 0, rest = 0;
    double peak = 0.0;
    for (const Action& action : actions) {
      if (action.kind == Kind::forward) ++whole;
      if (action.kind == Kind::backward_input) --whole, ++rest;
      if (action.kind == Kind::backward) --whole;
      if (action.kind == Kind::backward_weight) --rest;
      peak = std::max(peak, whole + rest * kept_for_weights);
    }
    peaks.push_back(peak / schedule.chunks);
  }
  return peaks;
}

std::vector<int> weight_versions(const Schedule& schedule) {
  std::vector<int> most;
  for (const auto& actions : schedule.ranks) {
    if (schedule.updates != Updates::each_microbatch) {
      most.push_back(schedule.asynchronous() ? 2 : 1);
      continue;
    }
    // The version that each micro-batch's forward used, in updates of its stage.
    std::map<int, std::map<int, int>> needed;  // [stage][version] micro-batches in flight
    std::map<std::pair<int, int>, int> version_of;
    std::map<int, int> updates;
    size_t peak = 1;
    for (const Action& action : actions) {
      auto& versions = needed[action.stage];
      const std::pair key{action.stage, action.microbatch};
      if (action.kind == Kind::forward) {
        version_of[key] = updates[action.stage];
        ++versions[updates[action.stage]];
      } else if (is_weight_gradient(action.kind)) {
        if (--versions[version_of[key]] == 0) versions.erase(version_of[key]);
        ++updates[action.stage];
      }
      peak = std::max(peak, versions.size());
    }
    most.push_back(static_cast<int>(peak));
  }
  return most;
}

}  // namespace trident
