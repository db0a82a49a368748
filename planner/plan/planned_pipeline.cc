#include "planner/plan/planned_pipeline.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "scheduler/simulate.h"

namespace trident {
namespace {

// Returns a key that is equal for ranks that differ only in the number of micro-batches that they
// hold: equal numbers of layers in each chunk, neither end of the model, lists made by one rule.
std::vector<std::int64_t> share_of(const Config& config, const Schedule& schedule, int rank) {
  const bool one_rule =
      config.pipeline.schedule_file.empty() && !schedule_constraints(config).searched;
  std::vector<std::int64_t> share;
  for (const int stage : schedule.placement[static_cast<std::size_t>(rank)]) {
    const bool ends = stage == 0 || stage + 1 == schedule.total_stages();
    share.push_back(config.pipeline.layer_split[static_cast<std::size_t>(stage)]);
    if (ends || !one_rule) share.push_back(-1 - rank);  // equal to no other rank's
  }
  return share;
}

// Splits the ranks into lists with equal shares in which the number of micro-batches in flight
// grows linearly.
std::vector<std::vector<int>> linear_ranges(const Config& config, const Schedule& schedule) {
  std::vector<std::vector<int>> ranges;
  const std::vector<double> in_flight = peak_in_flight(schedule);
  std::map<std::vector<std::int64_t>, std::size_t> latest;  // the latest list of each share
  for (int rank = 0; rank < schedule.stages; ++rank) {
    const auto [at, added] = latest.try_emplace(share_of(config, schedule, rank), ranges.size());
    const auto fits = [&](const std::vector<int>& line) {
      if (line.size() < 2) return true;
      const auto value = [&](int r) { return in_flight[static_cast<std::size_t>(r)]; };
      const int first = line[0], second = line[1];
      return (value(rank) - value(first)) * (second - first) ==
             (value(second) - value(first)) * (rank - first);
    };
    if (added || !fits(ranges[at->second])) {
      at->second = ranges.size();
      ranges.emplace_back();
    }
    ranges[at->second].push_back(rank);
  }
  return ranges;
}

// Interpolates linearly; returns nothing where a value would not be an integer.
std::optional<PlannedMemory> between(const PlannedMemory& first, const PlannedMemory& last,
                                     std::int64_t part, std::int64_t whole) {
  bool even = true;
  const auto on_line = [&](std::int64_t from, std::int64_t to) {
    even = even && (to - from) % whole == 0;
    return from + (to - from) / whole * part;
  };
  PlannedMemory plan;
  for (std::size_t c = 0; c < plan.peak.size(); ++c) {
    plan.peak[c] = on_line(first.peak[c], last.peak[c]);
  }
  plan.peak_total = on_line(first.peak_total, last.peak_total);
  return even ? std::optional(plan) : std::nullopt;
}

bool same_sizes(const PlannedRank& a, const PlannedRank& b) {
  const auto same_entry = [](const BucketEntry& x, const BucketEntry& y) {
    return x.parameter->spec().placement.global == y.parameter->spec().placement.global &&
           x.offset == y.offset && x.numel == y.numel;
  };
  if (a.buffer_bytes != b.buffer_bytes) return false;
  return std::ranges::equal(a.buckets, b.buckets, [&](const auto& x, const auto& y) {
    return x.elements == y.elements && std::ranges::equal(x.entries, y.entries, same_entry);
  });
}

bool alike(const PlannedRank& a, const PlannedRank& b) {
  return a.memory == b.memory && a.collecting == b.collecting && a.traffic == b.traffic &&
         same_sizes(a, b);
}

using PlanOf = std::function<PlannedRank(int rank)>;

// Plans the ends of a list of ranks and three ranks between them. If these lie on a line, to the
// byte and to the last operation, all others do. Otherwise both sides of the estimated bend are
// planned in the same way.
class LinearRange {
 public:
  LinearRange(const std::vector<int>& ranks, const PlanOf& plan)
      : ranks_(ranks), plan_(plan), plans_(ranks.size()) {}

  std::vector<PlannedRank> plans() {
    fill(0, ranks_.size() - 1);
    std::vector<PlannedRank> result;
    for (auto& plan : plans_) result.push_back(std::move(*plan));
    return result;
  }

 private:
  const PlannedRank& at(std::size_t i) {
    if (!plans_[i]) plans_[i] = plan_(ranks_[i]);
    return *plans_[i];
  }

  // Returns rank i's plan on the line through low and high.
  std::optional<PlannedRank> on_line(std::size_t low, std::size_t high, std::size_t i) {
    const std::int64_t whole = ranks_[high] - ranks_[low], part = ranks_[i] - ranks_[low];
    const PlannedRank &first = at(low), &last = at(high);
    const auto memory = between(first.memory, last.memory, part, whole);
    const auto collecting = between(first.collecting, last.collecting, part, whole);
    auto traffic = first.traffic.between(last.traffic, part, whole);
    if (!memory || !collecting || !traffic) return std::nullopt;
    return PlannedRank{.memory = *memory,
                       .collecting = *collecting,
                       .traffic = std::move(*traffic),
                       .buckets = first.buckets,
                       .buffer_bytes = first.buffer_bytes,
                       .rolls_back = first.rolls_back};
  }

  // Returns the intersection of the line through the first two and the line through the last two;
  // the middle if the lines don't meet.
  std::size_t bend_between(std::size_t low, std::size_t high) {
    const auto rank = [&](std::size_t i) { return static_cast<double>(ranks_[i]); };
    const auto total = [&](std::size_t i) { return static_cast<double>(at(i).memory.peak_total); };
    const auto slope = [&](std::size_t i) {
      return (total(i + 1) - total(i)) / (rank(i + 1) - rank(i));
    };
    const double first = slope(low), last = slope(high - 1);
    if (first == last) return low + (high - low) / 2;
    const double away =
        (total(high) - total(low) - last * (rank(high) - rank(low))) / (first - last);
    const auto place = std::upper_bound(ranks_.begin(), ranks_.end(), rank(low) + away);
    const auto index = static_cast<std::size_t>(place - ranks_.begin());
    return std::clamp(index, low + 2, high - 1) - 1;
  }

  void fill(std::size_t low, std::size_t high) {
    constexpr std::size_t few = 8;
    if (high - low < few) {
      for (std::size_t i = low; i <= high; ++i) at(i);
      return;
    }
    const std::size_t middle = low + (high - low) / 2;
    bool line = true;
    for (const std::size_t i : {low + 1, middle, high - 1}) {
      const auto expected = on_line(low, high, i);
      line = line && expected && alike(*expected, at(i));
    }
    if (!line) {
      const std::size_t bend = bend_between(low, high);
      fill(low, bend);
      fill(bend + 1, high);
      return;
    }
    for (std::size_t i = low + 1; i < high; ++i) plans_[i] = on_line(low, high, i);
  }

  const std::vector<int>& ranks_;
  const PlanOf& plan_;
  std::vector<std::optional<PlannedRank>> plans_;
};

// Returns the plans of all places; calls `plan` for some of them.
std::vector<PlannedRank> plan_places(const RankPlanner& planner, const PlanOf& plan) {
  std::vector<PlannedRank> plans(static_cast<std::size_t>(planner.schedule().stages));
  for (const std::vector<int>& ranks : linear_ranges(planner.config(), planner.schedule())) {
    std::vector<PlannedRank> found = LinearRange(ranks, plan).plans();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      plans[static_cast<std::size_t>(ranks[i])] = std::move(found[i]);
    }
  }
  return plans;
}

// Returns the first place, then for each share the place that holds most micro-batches. One of them
// usually has the largest peak.
std::vector<int> fullest_places(const RankPlanner& planner) {
  const std::vector<double> in_flight = peak_in_flight(planner.schedule());
  std::map<std::vector<std::int64_t>, int> fullest;
  for (int rank = 0; rank < planner.schedule().stages; ++rank) {
    const auto held = [&](int r) { return in_flight[static_cast<std::size_t>(r)]; };
    const auto [at, added] =
        fullest.try_emplace(share_of(planner.config(), planner.schedule(), rank), rank);
    if (held(rank) > held(at->second)) at->second = rank;
  }
  std::vector<int> places{0};
  for (const auto& [share, rank] : fullest) {
    if (rank > 0) places.push_back(rank);
  }
  return places;
}

}  // namespace

std::vector<PlannedRank> plan_pipeline(const Config& config, const Architecture& architecture,
                                       const Schedule& schedule) {
  const RankPlanner planner(config, architecture, schedule);
  return plan_places(planner, [&](int rank) { return planner.plan(rank); });
}

std::vector<PlannedRank> plan_memory(const Config& config, const Architecture& architecture,
                                     const Schedule& schedule,
                                     const std::function<bool(const PlannedRank&)>& enough) {
  const RankPlanner planner(config, architecture, schedule);
  std::map<int, PlannedRank> known;
  const PlanOf plan = [&](int rank) {
    const auto [at, added] = known.try_emplace(rank);
    if (added) at->second = planner.plan_memory(rank);
    return at->second;
  };
  for (const int rank : fullest_places(planner)) {
    if (enough(plan(rank))) return {plan(rank)};
  }
  return plan_places(planner, plan);
}

}  // namespace trident
