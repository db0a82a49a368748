#include "run/loop/save_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/simulation/failures.h"

namespace trident {
namespace {

constexpr std::size_t kKept = 101;  // iterations whose median is usual_iteration()
constexpr std::size_t kLeast = 5;   // with fewer, iterations during saves count, too
constexpr std::int64_t kFirst = 2;  // the first iterations, which allocate buffers, are ignored

std::int64_t iterations_in(double seconds, double iteration) {
  constexpr double kMost = 1e12;
  return static_cast<std::int64_t>(std::clamp(std::round(seconds / iteration), 1.0, kMost));
}

}  // namespace

void SaveCosts::iteration(double seconds, bool during_save) {
  if (++seen_ <= kFirst) return;
  if (during_save) {
    during_save_.push_back(seconds);
  } else if (usual_.size() < kKept) {
    usual_.push_back(seconds);
  } else {
    usual_[next_++ % kKept] = seconds;
  }
}

double SaveCosts::usual_iteration() const {
  std::vector<double> sorted = usual_;
  if (sorted.size() < kLeast) sorted.insert(sorted.end(), during_save_.begin(), during_save_.end());
  if (sorted.empty()) return 0;
  const auto middle = sorted.begin() + std::ssize(sorted) / 2;
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

double SaveCosts::each() const {
  if (saves_ == 0) return 0;
  const double usual = usual_iteration();
  double slower = 0;
  for (const double seconds : during_save_) slower += seconds - usual;
  return (waited_ + std::max(0.0, slower)) / static_cast<double>(saves_);
}

std::string best_intervals_text(const SaveCosts& durable, const SaveCosts* on_nodes,
                                double mtbf_hours, double durable_mtbf_hours) {
  const double iteration = durable.usual_iteration();
  if (mtbf_hours <= 0 || iteration <= 0 || durable.saves() == 0) return "";
  if (on_nodes != nullptr && on_nodes->saves() == 0) return "";
  const double rare =
      on_nodes != nullptr && durable_mtbf_hours > 0 ? durable_mtbf_hours : mtbf_hours;
  const auto best = [&](const SaveCosts& costs, double hours, const char* key) {
    const double seconds = best_save_interval(costs.each(), hours * 3600);
    return fmt::format(
        "{} {} (every {:.3g} s; a save has cost {:.3g} s of training, such a failure "
        "comes every {:g} h)",
        key, iterations_in(seconds, iteration), seconds, costs.each(), hours);
  };
  std::string text = "best intervals by Daly (2006): ";
  if (on_nodes != nullptr) text += best(*on_nodes, mtbf_hours, "checkpoint.local.interval") + ", ";
  return text + best(durable, rare, "checkpoint.save_interval");
}

}  // namespace trident
