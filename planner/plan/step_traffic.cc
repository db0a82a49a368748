#include "planner/plan/step_traffic.h"

#include <algorithm>
#include <tuple>

#include "parallel/collectives/volume.h"

namespace trident {
namespace {

using Times = StepTraffic::Times;

// Returns the operations of each action, then those outside all actions.
std::vector<Times> by_action(const OperationTrace& trace, std::size_t actions) {
  std::vector<Times> list(actions + 1);
  for (const TracedOperation& one : trace.operations()) {
    if (one.group < 0) continue;
    const OperationTrace::Group& group = trace.groups()[static_cast<std::size_t>(one.group)];
    const std::size_t action =
        one.action < 0 ? actions : std::min(static_cast<std::size_t>(one.action), actions);
    const auto operation = static_cast<Operation>(one.operation);
    ++list[action][{.group = group.name,
                    .size = group.size,
                    .operation = operation,
                    .algorithm = static_cast<Algorithm>(one.algorithm),
                    .dtype = one.dtype,
                    .count = one.shape.dim(0),
                    .root = one.root,
                    .sent = operation == Operation::all_to_all_v ? one.bytes_sent : 0}];
  }
  return list;
}

void add(const Times& from, Times& into) {
  for (const auto& [operation, times] : from) into[operation] += times;
}

// The properties that tell actions apart: see StepTraffic::stretched.
using Place = std::tuple<Kind, int, Kind, int, Kind, int, bool, bool>;

std::vector<Place> places_of(const std::vector<Action>& actions) {
  using Which = std::pair<Kind, int>;
  std::map<Which, std::size_t> first, last;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Which which{actions[i].kind, actions[i].stage};
    first.try_emplace(which, i);
    last[which] = i;
  }
  const auto neighbour = [&](std::size_t i) {
    return i < actions.size() ? Which{actions[i].kind, actions[i].stage} : Which{Kind::forward, -1};
  };
  std::vector<Place> places;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Which own = neighbour(i), before = neighbour(i - 1), after = neighbour(i + 1);
    places.emplace_back(own.first, own.second, before.first, before.second, after.first,
                        after.second, first[own] == i, last[own] == i);
  }
  return places;
}

}  // namespace

StepTraffic::StepTraffic(const OperationTrace& trace) : times_(by_action(trace, 0).front()) {}

std::optional<StepTraffic> StepTraffic::extrapolated(const OperationTrace& trace,
                                                     const std::vector<Action>& run,
                                                     const std::vector<Action>& all) {
  const std::vector<Times> operations = by_action(trace, run.size());
  const std::vector<Place> places = places_of(run);
  std::map<Place, const Times*> known;
  for (std::size_t i = 0; i < run.size(); ++i) {
    const auto [at, added] = known.try_emplace(places[i], &operations[i]);
    if (!added && *at->second != operations[i]) return std::nullopt;
  }
  std::map<Place, std::int64_t> wanted;
  for (const Place& place : places_of(all)) ++wanted[place];
  StepTraffic traffic;
  add(operations.back(), traffic.times_);
  for (const auto& [place, times] : wanted) {
    const auto found = known.find(place);
    if (found == known.end()) return std::nullopt;
    for (const auto& [operation, each] : *found->second) traffic.times_[operation] += each * times;
  }
  return traffic;
}

std::int64_t StepTraffic::sent(const std::string& group, int place,
                               std::span<const Collective> more) const {
  std::int64_t bytes = 0;
  for (auto at = times_.lower_bound({.group = group}); at != times_.end(); ++at) {
    const auto& [operation, times] = *at;
    if (operation.group != group) break;
    const Descriptor d{.count = operation.count,
                       .root = operation.root,
                       .operation = operation.operation,
                       .dtype = operation.dtype,
                       .algorithm = operation.algorithm};
    bytes += times * (operation.operation == trident::Operation::all_to_all_v
                          ? operation.sent
                          : bytes_sent(d, operation.size, place, more));
  }
  return bytes;
}

std::optional<StepTraffic> StepTraffic::between(const StepTraffic& other, std::int64_t part,
                                                std::int64_t whole) const {
  StepTraffic result;
  Times all = times_;
  for (const auto& [operation, times] : other.times_) all.try_emplace(operation, 0);
  for (const auto& [operation, from] : all) {
    const auto found = other.times_.find(operation);
    const std::int64_t grown = (found == other.times_.end() ? 0 : found->second) - from;
    if (grown % whole != 0) return std::nullopt;
    const std::int64_t times = from + grown / whole * part;
    if (times != 0) result.times_[operation] = times;
  }
  return result;
}

}  // namespace trident
