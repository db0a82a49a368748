// Properties of every schedule, over random kinds, sizes and times.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <tuple>

#include "base/error.h"
#include "scheduler/csv.h"
#include "scheduler/lower_bound.h"
#include "scheduler/schedules.h"
#include "scheduler/simulate.h"
#include "scheduler/validate.h"
#include "tests/scheduler/ordered_channels.h"

namespace trident {
namespace {

// Sanitizers make these loops ten times as long, and find no more in the later rounds.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int part = 20;
#else
constexpr int part = 1;
#endif

struct Case {
  ScheduleRequest request;
  Schedule schedule;
};

// A random request that its schedule accepts, with up to 8 ranks and 4 chunks.
Case random_case(std::mt19937& random) {
  const auto kinds = names_of(schedule_registry());
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  const auto time = [&] { return std::uniform_real_distribution<double>(0.1, 3.0)(random); };
  for (;;) {
    ScheduleRequest request{.kind = kinds[random() % kinds.size()],
                            .stages = 1 + below(8),
                            .microbatches = 1 + below(24),
                            .chunks = below(5),
                            .group_size = below(3) ? 0 : below(12)};
    if (request.kind == "auto" && random() % 50) continue;  // a search takes longer
    request.search_seconds = 0.02;
    request.transfer = below(2) ? 0.0 : 0.2 * time();
    const int count = below(2) ? 1 : request.stages;
    request.times = {{}, {}, {}};
    for (int i = 0; i < count; ++i) {
      request.times.forward.push_back(time());
      request.times.backward_input.push_back(time());
      request.times.backward_weight.push_back(time());
    }
    try {
      return {request, make_schedule(request)};
    } catch (const RequestError&) {
    }
  }
}

std::string name_of(const ScheduleRequest& r) {
  return fmt::format("{} p={} m={} v={} g={}", r.kind, r.stages, r.microbatches, r.chunks,
                     r.group_size);
}

bool is_weight(const Action& a) {
  return a.kind == Kind::backward || a.kind == Kind::backward_weight;
}

// The longest path through the dependencies, by relaxation until no time changes. It uses no clock
// and no events.
double critical_path(const Schedule& s, const StageTimes& t, double transfer) {
  std::map<std::tuple<bool, int, int>, double> made;  // end of each F, and of each B or I
  std::vector<double> ends(s.ranks.size());
  const auto length = [&](const Action& a) {
    return (a.kind == Kind::forward ? t.forward[a.stage] : 0.0) +
           (a.kind == Kind::backward || a.kind == Kind::backward_input ? t.backward_input[a.stage]
                                                                       : 0.0) +
           (is_weight(a) ? t.backward_weight[a.stage] : 0.0);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < s.stages; ++rank) {
      double end = 0.0;
      const auto& list = s.ranks[rank];
      for (size_t i = 0; i < list.size();) {
        const size_t next = i + (list[i].fused ? 2 : 1);
        for (size_t k = i; k < next; ++k) {
          const bool forward = list[k].kind == Kind::forward;
          const int source = list[k].stage + (forward ? -1 : 1);
          if (list[k].kind == Kind::backward_weight || source < 0 || source >= s.total_stages()) {
            continue;
          }
          end = std::max(end, made[{forward, source, list[k].microbatch}] +
                                  (s.rank_of_stage(source) == rank ? 0.0 : transfer));
        }
        for (size_t k = i; k < next; ++k) end += length(list[k]);
        for (size_t k = i; k < next; ++k) {
          if (list[k].kind == Kind::backward_weight) continue;
          double& slot = made[{list[k].kind == Kind::forward, list[k].stage, list[k].microbatch}];
          moved = moved || slot < end;
          slot = std::max(slot, end);
        }
        i = next;
      }
      ends[rank] = end;
    }
  }
  return *std::max_element(ends.begin(), ends.end());
}

// The published memory rule of each schedule for rank r, in micro-batches; m if none is known.
double memory_rule(const Case& c, int rank) {
  const auto& r = c.request;
  const double p = r.stages, m = r.microbatches;
  const double v = c.schedule.chunks;
  if (r.kind == "naive") return 1;
  if (r.kind == "1f1b" || r.kind.starts_with("pipedream")) return std::min(p - rank, m);
  if (r.kind == "zb_h1" || r.kind == "zbv") return std::min(p, m);
  if (r.kind == "zb_h2") return std::min(2 * p - 1, m);
  if (r.kind == "dualpipev") return std::min(p + 1, m);  // as measured; no published rule
  if (r.kind == "interleaved_1f1b") {
    const double g = complete(r).group_size;
    return std::min(m, (2 * (p - rank - 1) + (v - 1) * g + 1) / v);
  }
  return m;
}

TEST(Properties, OfTenThousandRandomSchedules) {
  std::mt19937 random(20261121);
  std::map<std::string, int> seen;
  for (int round = 0; round < 10'000 / part; ++round) {
    const Case c = random_case(random);
    const Schedule& s = c.schedule;
    SCOPED_TRACE(name_of(c.request));
    ++seen[c.request.kind];
    ASSERT_NO_THROW(validate(s));
    run_over_ordered_channels(s, random);
    const std::vector<double> peaks = peak_in_flight(s);
    for (int rank = 0; rank < s.stages; ++rank) {
      EXPECT_LE(peaks[rank], memory_rule(c, rank) + 1e-9) << "rank " << rank;
    }
    const StageTimes times = stage_times(s, c.request.times);
    const Simulation simulation = simulate(s, times, c.request.transfer);
    EXPECT_NEAR(simulation.bubble.makespan, critical_path(s, times, c.request.transfer), 1e-9);
    // Every moment in which a rank doesn't work counts as idle, for exactly one reason.
    const std::vector<IdleTime> idle = idle_by_reason(s, simulation);
    for (int rank = 0; rank < s.stages; ++rank) {
      double work = 0.0;
      for (const auto& [start, end] : simulation.actions[rank]) work += end - start;
      const IdleTime& i = idle[rank];
      for (const double t : {i.warmup, i.steady, i.drain, i.transfer}) EXPECT_GE(t, -1e-9);
      EXPECT_NEAR(work + i.warmup + i.steady + i.drain + i.transfer, simulation.bubble.makespan,
                  1e-9);
      if (c.request.transfer == 0.0) {
        EXPECT_EQ(i.transfer, 0.0);
      }
    }
    EXPECT_TRUE(from_csv(to_csv(s), s.kind).ranks == s.ranks);
    if (HasFailure()) return;
  }
  for (const std::string& kind : names_of(schedule_registry()))
    EXPECT_GT(seen[kind], 10 / part) << kind;
}

// The expected result of validate(), by brute force.
bool is_sound(const Schedule& s) {
  std::map<std::tuple<int, int, Kind>, int> count;
  for (int rank = 0; rank < s.stages; ++rank) {
    std::map<std::pair<int, int>, std::string> order;
    for (const Action& a : s.ranks[rank]) {
      if (s.rank_of_stage(a.stage) != rank) return false;
      order[{a.stage, a.microbatch}] += letter(a.kind);
    }
    for (int stage : s.placement[rank]) {
      for (int i = 0; i < s.microbatches; ++i) {
        const std::string& letters = order[{stage, i}];
        if (letters != "FB" && letters != "FIW") return false;
      }
    }
  }
  std::vector<size_t> next(s.ranks.size(), 0);
  std::map<std::tuple<bool, int, int>, bool> made;
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < s.stages; ++rank) {
      const auto& list = s.ranks[rank];
      while (next[rank] < list.size()) {
        const size_t begin = next[rank], end = begin + (list[begin].fused ? 2 : 1);
        if (end > list.size()) return false;
        bool ready = true;
        for (size_t k = begin; k < end; ++k) {
          const bool forward = list[k].kind == Kind::forward;
          const int source = list[k].stage + (forward ? -1 : 1);
          if (list[k].kind == Kind::backward_weight || source < 0 || source >= s.total_stages()) {
            continue;
          }
          ready = ready && made[{forward, source, list[k].microbatch}];
        }
        if (!ready) break;
        if (end == begin + 2 && (list[begin].kind != Kind::forward ||
                                 list[begin + 1].kind != Kind::backward || list[begin + 1].fused ||
                                 (list[begin].stage == list[begin + 1].stage &&
                                  list[begin].microbatch == list[begin + 1].microbatch))) {
          return false;
        }
        for (size_t k = begin; k < end; ++k) {
          if (list[k].kind == Kind::backward_weight) continue;
          made[{list[k].kind == Kind::forward, list[k].stage, list[k].microbatch}] = true;
        }
        next[rank] = end;
        moved = true;
      }
    }
  }
  for (size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank] != s.ranks[rank].size()) return false;
  }
  return true;
}

bool is_accepted(const Schedule& s) {
  try {
    validate(s);
    return true;
  } catch (const RequestError&) {
    return false;
  }
}

TEST(Properties, MutatedSchedulesAreCaught) {
  std::mt19937 random(5);
  int moved_and_refused = 0, moved_and_sound = 0;
  for (int round = 0; round < 6'000 / part; ++round) {
    Case c = random_case(random);
    SCOPED_TRACE(name_of(c.request));
    Schedule& s = c.schedule;
    auto& list = s.ranks[random() % s.ranks.size()];
    const size_t at = random() % list.size();
    const Action action = list[at];
    switch (round % 3) {
      case 0:
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
        EXPECT_FALSE(is_accepted(s)) << "dropped " << to_string(action);
        break;
      case 1:
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(random() % (list.size() + 1)),
                    action);
        EXPECT_FALSE(is_accepted(s)) << "doubled " << to_string(action);
        break;
      default: {
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
        auto& to = random() % 4 ? list : s.ranks[random() % s.ranks.size()];
        to.insert(to.begin() + static_cast<std::ptrdiff_t>(random() % (to.size() + 1)), action);
        const bool sound = is_sound(s);
        EXPECT_EQ(is_accepted(s), sound) << "moved " << to_string(action);
        ++(sound ? moved_and_sound : moved_and_refused);
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(moved_and_refused, 500 / part);
  EXPECT_GT(moved_and_sound, 100 / part);
}

// The schedule found fits the memory, and is at least as good as every other synchronous one that
// does.
TEST(Properties, AutoIsAsGoodAsTheBestUnderTheLimit) {
  std::mt19937 random(8);
  int better = 0;
  for (int round = 0; round < 100 / part; ++round) {
    ScheduleRequest request = random_case(random).request;
    request.group_size = 0;
    request.chunks = static_cast<int>(random() % 3);
    if (random() % 3 != 0) {
      const auto limit = [&] {
        return 1.0 + 0.5 * static_cast<double>(random() % (3 * request.stages));
      };
      request.memory.most = {limit()};
      while (random() % 2 == 0 && std::ssize(request.memory.most) != request.stages) {
        request.memory.most.push_back(limit());
      }
      if (std::ssize(request.memory.most) != request.stages) request.memory.most.resize(1);
      request.memory.kept_for_weights = random() % 2 == 0 ? 1.0 : 0.3;
    }
    request.objective = random() % 2 == 0 ? Objective::makespan : Objective::span;
    const auto value = [&](const std::string& kind) -> std::optional<double> {
      request.kind = kind;
      try {
        const Schedule s = make_schedule(request);
        if (s.asynchronous()) return std::nullopt;
        validate(s);
        const Simulation run = simulate(s, stage_times(s, request.times), request.transfer);
        return value_of(request.objective, s, run.bubble);
      } catch (const RequestError&) {
        return std::nullopt;
      }
    };
    const auto found = value("auto");
    SCOPED_TRACE(name_of(request));
    if (request.chunks != 2) {
      ASSERT_TRUE(found);  // naive always fits: a limit is at least 1
    }
    bool best = true;
    for (const std::string& kind : names_of(schedule_registry())) {
      const auto other = value(kind);
      if (!other || kind == "auto") continue;
      ASSERT_TRUE(found) << kind;
      EXPECT_LE(*found, *other + 1e-9) << kind;
      best = best && *found < *other - 1e-9;
    }
    better += found && best;
  }
  EXPECT_GT(better, 30 / part);  // the search must find better ones
}

// Checks every synchronous schedule, with the memory that it takes itself as the limit.
TEST(Properties, NoScheduleIsShorterThanTheLowerBounds) {
  std::mt19937 random(9);
  int met = 0, split = 0;
  for (int round = 0; round < 2000 / part; ++round) {
    const auto [request, schedule] = random_case(random);
    if (schedule.asynchronous()) continue;
    const StageTimes times = stage_times(schedule, request.times);
    const Bubble bubble = simulate(schedule, times, request.transfer).bubble;
    ScheduleRequest limited = request;
    limited.memory.kept_for_weights = static_cast<double>(random() % 5) / 4;
    limited.memory.most = peak_in_flight(schedule, limited.memory.kept_for_weights);
    Schedule empty = schedule;
    empty.ranks.clear();
    const LowerBounds bounds = lower_bounds(SearchProblem::of(limited, empty));
    SCOPED_TRACE(name_of(request));
    EXPECT_LE(bounds.makespan, bubble.makespan * (1 + 1e-9));
    EXPECT_LE(bounds.span, bubble.longest_span * (1 + 1e-9));
    met += bounds.makespan > bubble.makespan * (1 - 1e-9);
    ++split;
  }
  EXPECT_GT(met, split / 20);  // the bounds are not far below either
}

}  // namespace
}  // namespace trident
