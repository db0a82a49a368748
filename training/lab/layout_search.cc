#include "training/lab/layout_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "training/lab/layout_choices.h"
#include "training/lab/layout_estimate.h"
#include "training/setup/from_config.h"
#include "training/setup/kinds.h"

namespace trident {
namespace {

class LayoutSearcher {
 public:
  explicit LayoutSearcher(const LayoutRequest& request)
      : request_(request),
        choices_(request),
        estimator_(request, choices_),
        machine_(request.machine),
        memory_(request.memory > 0 ? static_cast<double>(request.memory)
                                   : request.machine.device.memory) {}

  LayoutSearch run() {
    for (const std::int64_t ranks : request_.ranks) need_devices(ranks);
    for (const std::int64_t ranks : request_.ranks) search(ranks);
    if (result_.plans.empty()) nothing_fits();
    mark_front();
    return std::move(result_);
  }

 private:
  void need_devices(std::int64_t ranks) const {
    const Machine& machine = request_.machine;
    const std::int64_t there = machine.nodes * machine.devices_per_node;
    if (machine.nodes == 0 || ranks <= there) return;
    throw RequestError(fmt::format("--ranks: {}: {} has {} of {}, {} in all", ranks, machine.name,
                                   counted(machine.nodes, "node"),
                                   counted(machine.devices_per_node, "device"), there));
  }

  // --- Whole ---

  void prune(const std::string& reason) { ++result_.pruned[reason]; }

  void enumerate(std::int64_t ranks) {
    layouts_.clear();
    const auto consider = [&](Layout l) {
      ++result_.considered;
      if (const std::string problem = estimator_.estimate(l); !problem.empty()) {
        return prune(problem);
      }
      if (l.bytes > 1.15 * memory_) return prune("needs too much memory, estimated");
      layouts_.push_back(std::move(l));
    };
    choices_.each(ranks, consider, [&](const std::string& reason) { prune(reason); });
  }

  // A part of what each world size may take.
  std::int64_t effort_of(double part) const {
    return static_cast<std::int64_t>(1e6 * part * request_.effort /
                                     static_cast<double>(request_.ranks.size()));
  }

  std::vector<FoundLayout> simulated_of_fastest() {
    std::int64_t left = effort_of(0.6);
    std::vector<FoundLayout> found;
    double best = std::numeric_limits<double>::infinity(), least_bytes = best;
    for (const Layout& l : layouts_) {
      // Estimates are a little short, so slower ones are no candidates but for the memory's front.
      const bool slow = found.size() >= request_.wanted && l.seconds > 1.05 * best;
      if (left < 0 || (slow && l.bytes > 0.95 * least_bytes)) {
        prune("slower, estimated");
        continue;
      }
      const std::int64_t before = result_.simulated;
      auto plan = simulate(l);
      if (result_.simulated > before) left -= estimator_.effort(l);  // else it isn't valid
      if (plan) {
        least_bytes = std::min(least_bytes, l.bytes);
        best = std::min(best, plan->seconds);
        found.push_back(std::move(*plan));
      }
    }
    return found;
  }

  // Where none of the fast ones fits.
  std::vector<FoundLayout> simulated_of_thriftiest() {
    std::stable_sort(layouts_.begin(), layouts_.end(), [](const Layout& a, const Layout& b) {
      return std::tuple(a.bytes, a.seconds) < std::tuple(b.bytes, b.seconds);
    });
    std::int64_t left = effort_of(0.25);
    std::vector<FoundLayout> found;
    for (const Layout& l : layouts_) {
      if (left < 0 || found.size() >= request_.wanted) break;
      const std::int64_t before = result_.simulated;
      if (auto plan = simulate(l)) found.push_back(std::move(*plan));
      if (result_.simulated > before) left -= estimator_.effort(l);
    }
    return found;
  }

  void search(std::int64_t ranks) {
    enumerate(ranks);
    std::stable_sort(layouts_.begin(), layouts_.end(), [](const Layout& a, const Layout& b) {
      return std::tuple(a.seconds, a.bytes) < std::tuple(b.seconds, b.bytes);
    });
    std::vector<FoundLayout> found = simulated_of_fastest();
    if (found.empty()) found = simulated_of_thriftiest();
    if (found.empty()) result_.nothing_on.push_back(ranks);
    std::stable_sort(found.begin(), found.end(), [](const FoundLayout& a, const FoundLayout& b) {
      return std::tuple(a.seconds, a.peak_bytes) < std::tuple(b.seconds, b.peak_bytes);
    });
    // The front's stay, however slow.
    const std::size_t begin = result_.plans.size();
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::size_t kept = 0;
    for (FoundLayout& plan : found) {
      const bool thriftier = plan.peak_bytes < least;
      least = std::min(least, plan.peak_bytes);
      if (kept >= request_.wanted && !thriftier) continue;
      ++kept;
      result_.plans.push_back(std::move(plan));
    }
    try_splits(begin);
  }

  // The best with their layers split by the stages' work, where that is faster.
  void try_splits(std::size_t begin) {
    std::int64_t left = effort_of(0.15);
    std::vector<FoundLayout> thriftier;
    for (std::size_t i = begin; i < result_.plans.size() && left > 0; ++i) {
      FoundLayout& plan = result_.plans[i];
      if (plan.config.stages() == 1 || choices_.holds_split()) continue;
      left -= plan.effort;
      std::vector<std::string> set = plan.set;
      std::replace(set.begin(), set.end(), std::string("pipeline.layer_split=null"),
                   std::string("pipeline.layer_split=auto"));
      const auto split = simulate(
          FoundLayout{.set = std::move(set), .estimate = plan.estimate, .effort = plan.effort});
      if (!split || split->seconds >= plan.seconds) continue;
      // An even one that takes less memory stays beside it.
      if (split->peak_bytes <= plan.peak_bytes) {
        plan = *split;
      } else {
        thriftier.push_back(std::exchange(plan, *split));
      }
    }
    std::move(thriftier.begin(), thriftier.end(), std::back_inserter(result_.plans));
    std::stable_sort(result_.plans.begin() + static_cast<std::ptrdiff_t>(begin),
                     result_.plans.end(), [](const FoundLayout& a, const FoundLayout& b) {
                       return std::tuple(a.seconds, a.peak_bytes) <
                              std::tuple(b.seconds, b.peak_bytes);
                     });
  }

  std::optional<FoundLayout> simulate(const Layout& l) {
    return simulate(FoundLayout{
        .set = choices_.set_of(l), .estimate = l.seconds, .effort = estimator_.effort(l)});
  }
  std::optional<FoundLayout> simulate(FoundLayout plan) {
    try {
      LoadedConfig loaded = parse_config(request_.written, plan.set, request_.load);
      plan.config = std::move(loaded.config);
      plan.written = std::move(loaded.written);
      ++result_.simulated;
      Habits habits = Habits::of(plan.config);
      if (!request_.assume.empty()) habits.assume(request_.assume);
      const SimulatedStep step =
          simulate_step(plan.config, *architecture_of(plan.config), machine_, habits);
      thriftiest_ = std::min(thriftiest_, step.peak_bytes);
      if (static_cast<double>(step.peak_bytes) > memory_) {
        prune("needs too much memory, planned");
        return std::nullopt;
      }
      describe(plan, step);
    } catch (const RequestError& error) {
      prune("not valid: " + error.problems().front());
      return std::nullopt;
    }
    return plan;
  }

  static void describe(FoundLayout& plan, const SimulatedStep& step) {
    plan.seconds = step.seconds;
    plan.peak_bytes = step.peak_bytes;
    plan.mfu = step.mfu();
    plan.bubble_ratio = step.bubble_ratio;
    const auto ranks = static_cast<double>(step.ranks.size());
    double products = 0;
    for (const RankSeconds& rank : step.ranks) {
      products += rank.busy.products / step.seconds / ranks;
      double groups = rank.exposed + rank.messages;
      for (const auto& [group, seconds] : rank.busy.groups) groups += seconds;
      plan.waiting += rank.waiting / step.seconds / ranks;
      plan.communication += groups / step.seconds / ranks;
      plan.kernels += rank.busy.kernels / step.seconds / ranks;
    }
    // Products of equal rates.
    plan.recomputed = products * (1 - step.model_flops / step.hardware_flops);
  }

  void mark_front() {
    for (FoundLayout& plan : result_.plans) {
      plan.on_front =
          std::none_of(result_.plans.begin(), result_.plans.end(), [&](const FoundLayout& other) {
            const auto sizes = [](const FoundLayout& of) {
              return std::tuple(of.seconds, of.peak_bytes, of.config.world_size());
            };
            const auto [t, b, n] = sizes(other);
            const auto [own_t, own_b, own_n] = sizes(plan);
            return t <= own_t && b <= own_b && n <= own_n && sizes(other) != sizes(plan);
          });
    }
  }

  // The least memory, by the plan, of the layouts that are estimated to take least on so many
  // ranks.
  double thriftiest_on(std::int64_t ranks) {
    const double limit = memory_;
    memory_ = std::numeric_limits<double>::infinity();
    thriftiest_ = std::numeric_limits<std::int64_t>::max();
    enumerate(ranks);
    simulated_of_thriftiest();
    memory_ = limit;
    return thriftiest_ == std::numeric_limits<std::int64_t>::max()
               ? std::numeric_limits<double>::infinity()
               : static_cast<double>(thriftiest_);
  }

  // What most layouts failed by that divide.
  std::string usual_problem() const {
    std::string problem = "the global batch and the model have to divide";
    std::int64_t most = 0;
    for (const auto& [reason, count] : result_.pruned) {
      if (reason.starts_with("not valid: ") && count > most) problem = reason, most = count;
    }
    return problem;
  }

  [[noreturn]] void nothing_fits() {
    const std::int64_t ranks = *std::max_element(request_.ranks.begin(), request_.ranks.end());
    const double least = thriftiest_on(ranks);
    std::string text = fmt::format("trident search: nothing fits {} a rank on {}",
                                   bytes_text(memory_), counted(ranks, "rank"));
    if (!std::isfinite(least)) {
      throw RequestError(text + ": no layout is valid: " + usual_problem());
    }
    text += fmt::format(": the thriftiest layout that was planned takes {}, {} more",
                        bytes_text(least), bytes_text(least - memory_));
    const std::int64_t devices = machine_.nodes * machine_.devices_per_node;
    machine_.nodes = 0;
    for (std::int64_t factor = 2; factor <= 64; factor *= 2) {
      const double there = thriftiest_on(ranks * factor);
      if (there > memory_) continue;
      const bool more = devices > 0 && ranks * factor > devices;
      throw RequestError(fmt::format(
          "{}; on {} ranks one takes {}{}", text, ranks * factor, bytes_text(there),
          more ? fmt::format(", but {} has {} devices", machine_.name, devices) : std::string()));
    }
    throw RequestError(text + "; nor was one found on up to 64 times as many ranks");
  }

  const LayoutRequest& request_;
  const LayoutChoices choices_;
  LayoutEstimator estimator_;
  Machine machine_;
  double memory_;  // bytes
  std::vector<Layout> layouts_;
  std::int64_t thriftiest_ = std::numeric_limits<std::int64_t>::max();
  LayoutSearch result_;
};

}  // namespace

LayoutSearch search_layouts(const LayoutRequest& request) {
  return LayoutSearcher(request).run();
}

}  // namespace trident
