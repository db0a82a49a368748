#include "planner/search/layout_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "planner/plan/fit.h"
#include "planner/search/layout_bounds.h"
#include "planner/search/layout_choices.h"

namespace trident {
namespace {

constexpr auto too_much_bounded = "needs too much memory, by its bound",
               too_much_planned = "needs too much memory, planned",
               beaten_bounded = "beaten in time and memory, by its bounds",
               beaten_simulated = "beaten in time and memory, simulated",
               slower_bounded = "slower, by its bound";

// The number of layouts that are simulated concurrently, for any number of threads: layouts of one
// batch can't prune each other.
constexpr std::size_t batch_size = 16;

void describe(FoundLayout& plan, const SimulatedStep& step) {
  plan.seconds = step.seconds;
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
  // Assumes that all products run at the same rate.
  plan.recomputed = products * (1 - step.model_flops / step.hardware_flops);
}

// Whether the layout is hardly slower than a faster one and takes hardly less memory.
bool is_near(const FoundLayout& plan, const FoundLayout& faster) {
  return plan.seconds <= 1.01 * faster.seconds &&
         static_cast<double>(plan.peak_bytes) >= 0.97 * static_cast<double>(faster.peak_bytes);
}

class LayoutSearcher {
 public:
  explicit LayoutSearcher(const LayoutRequest& request)
      : request_(request),
        choices_(request),
        bounds_(request, choices_),
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
  // The result of evaluating a layout: the layout, or the reason why it is left out.
  struct Outcome {
    std::optional<FoundLayout> plan;
    std::string reason;
    bool simulated = false;
  };

  void need_devices(std::int64_t ranks) const {
    const Machine& machine = request_.machine;
    const std::int64_t there = machine.nodes * machine.devices_per_node;
    if (machine.nodes == 0 || ranks <= there) return;
    throw RequestError(fmt::format("--ranks: {}: {} has {} of {}, {} in all", ranks, machine.name,
                                   counted(machine.nodes, "node"),
                                   counted(machine.devices_per_node, "device"), there));
  }

  void prune(const std::string& reason) { ++result_.pruned[reason]; }

  // Returns all layouts that may fit, in the order of their bounds on time.
  std::vector<Layout> bounded(std::int64_t ranks) {
    std::vector<Layout> layouts;
    const auto consider = [&](Layout l) {
      ++result_.considered;
      if (const std::string problem = bounds_.bound(l); !problem.empty()) return prune(problem);
      if (l.bytes > memory_) return prune(too_much_bounded);
      layouts.push_back(std::move(l));
    };
    choices_.each(ranks, consider, [&](const std::string& reason) { prune(reason); });
    std::stable_sort(layouts.begin(), layouts.end(), [](const Layout& a, const Layout& b) {
      return std::tuple(a.seconds, a.bytes) < std::tuple(b.seconds, b.bytes);
    });
    return layouts;
  }

  // Whether a result is as good in the requested respects.
  bool is_beaten(double seconds, double bytes) const {
    return std::any_of(front_.begin(), front_.end(), [&](const FoundLayout& plan) {
      return plan.seconds <= seconds &&
             (request_.fastest || static_cast<double>(plan.peak_bytes) <= bytes);
    });
  }

  // Returns the most bytes with which a layout that takes `seconds` fits and isn't beaten yet.
  std::int64_t most_bytes(double seconds) const {
    auto most = static_cast<std::int64_t>(memory_);
    for (const FoundLayout& plan : front_) {
      if (request_.fastest || plan.seconds > seconds) continue;
      most = std::min(most, plan.peak_bytes - 1);
    }
    return most;
  }

  void search(std::int64_t ranks) {
    const std::vector<Layout> layouts = bounded(ranks);
    front_.clear(), others_.clear();
    for (std::size_t next = 0; next < layouts.size();) {
      std::vector<const Layout*> batch;
      for (; next < layouts.size() && batch.size() < batch_size; ++next) {
        if (is_beaten(layouts[next].seconds, layouts[next].bytes)) {
          prune(request_.fastest ? slower_bounded : beaten_bounded);
        } else {
          batch.push_back(&layouts[next]);
        }
      }
      for (Outcome& outcome : evaluate(batch)) take(std::move(outcome));
      report(ranks, next, layouts.size());
    }
    list(ranks);
  }

  void report(std::int64_t ranks, std::size_t evaluated, std::size_t layouts) const {
    if (!request_.progress) return;
    double best = 0;
    for (const FoundLayout& plan : front_) {
      if (best == 0 || plan.seconds < best) best = plan.seconds;
    }
    request_.progress({ranks, static_cast<std::int64_t>(evaluated),
                       static_cast<std::int64_t>(layouts), result_.simulated, best});
  }

  std::vector<Outcome> evaluate(const std::vector<const Layout*>& batch) const {
    std::vector<Outcome> outcomes(batch.size());
    std::vector<std::exception_ptr> errors(batch.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < batch.size(); i = next++) {
        try {
          outcomes[i] = evaluate(*batch[i]);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      }
    };
    std::vector<std::thread> threads;
    for (std::int64_t t = 1; t < std::min<std::int64_t>(request_.threads, std::ssize(batch)); ++t) {
      threads.emplace_back(work);
    }
    work();
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    return outcomes;
  }

  Outcome evaluate(const Layout& l) const {
    FoundLayout plan;
    plan.set = choices_.set_of(l);
    plan.least_seconds = l.seconds;
    try {
      LoadedConfig loaded = parse_config(request_.written, plan.set, request_.load);
      plan.config = std::move(loaded.config);
      plan.written = std::move(loaded.written);
      const auto architecture = architecture_of(plan.config);
      Assumptions assumptions =
          Assumptions::of(plan.config.zero_optimization, plan.config.parallel);
      if (!request_.assume.empty()) assumptions.assume(request_.assume);
      describe(plan, simulate_time(plan.config, *architecture, machine_, assumptions));
      if (is_beaten(plan.seconds, l.bytes)) return {{}, beaten_simulated, true};
      plan.peak_bytes =
          planned_peak(plan.config, *architecture, most_bytes(plan.seconds)).value_or(0);
    } catch (const RequestError& error) {
      return {{}, "not valid: " + error.problems().front()};
    }
    if (static_cast<double>(plan.peak_bytes) > memory_) return {{}, too_much_planned, true};
    return {std::move(plan), {}, true};
  }

  void take(Outcome outcome) {
    if (outcome.simulated) ++result_.simulated;
    if (!outcome.plan) return prune(outcome.reason);
    FoundLayout& plan = *outcome.plan;
    if (is_beaten(plan.seconds, static_cast<double>(plan.peak_bytes))) {
      if (!request_.fastest) return prune(beaten_simulated);
      others_.push_back(std::move(plan));
      return;
    }
    const auto beats = [&](const FoundLayout& other) {
      return plan.seconds <= other.seconds && plan.peak_bytes <= other.peak_bytes;
    };
    if (request_.fastest) {
      std::move(front_.begin(), front_.end(), std::back_inserter(others_));
      front_.clear();
    } else {
      const auto count = std::erase_if(front_, beats);
      result_.pruned[beaten_simulated] += static_cast<std::int64_t>(count);
    }
    front_.push_back(std::move(plan));
  }

  // Lists the layouts found on `ranks` ranks.
  void list(std::int64_t ranks) {
    if (front_.empty()) return result_.nothing_on.push_back(ranks);
    std::vector<FoundLayout> plans = std::exchange(front_, {});
    std::move(others_.begin(), others_.end(), std::back_inserter(plans));
    std::stable_sort(plans.begin(), plans.end(), [](const FoundLayout& a, const FoundLayout& b) {
      return std::tuple(a.seconds, a.peak_bytes) < std::tuple(b.seconds, b.peak_bytes);
    });
    const std::size_t begin = result_.plans.size();
    for (FoundLayout& plan : plans) {
      const bool folds =
          !request_.fastest && result_.plans.size() > begin && is_near(plan, result_.plans.back());
      (folds ? result_.plans.back().near : result_.plans).push_back(std::move(plan));
    }
  }

  void mark_front() {
    const auto sizes = [](const FoundLayout& of) {
      return std::tuple(of.seconds, of.peak_bytes, of.config.world_size());
    };
    for (FoundLayout& plan : result_.plans) {
      plan.on_front =
          std::none_of(result_.plans.begin(), result_.plans.end(), [&](const FoundLayout& other) {
            const auto [t, b, n] = sizes(other);
            const auto [own_t, own_b, own_n] = sizes(plan);
            return t <= own_t && b <= own_b && n <= own_n && sizes(other) != sizes(plan);
          });
    }
  }

  // --- Where nothing fits ---

  // Returns the least planned bytes of the layouts on `ranks` ranks that take at most `limit`, or
  // the bytes of the first that fits; nothing if there is no such layout.
  std::optional<std::int64_t> least_memory_on(std::int64_t ranks, std::int64_t limit) {
    const double memory = std::exchange(memory_, static_cast<double>(limit));
    std::vector<Layout> layouts = bounded(ranks);
    memory_ = memory;
    std::stable_sort(layouts.begin(), layouts.end(), [](const Layout& a, const Layout& b) {
      return std::tuple(a.bytes, a.seconds) < std::tuple(b.bytes, b.seconds);
    });
    std::optional<std::int64_t> least;
    for (const Layout& l : layouts) {
      if (least &&
          (l.bytes >= static_cast<double>(*least) || static_cast<double>(*least) <= memory_)) {
        break;
      }
      try {
        const Config config = choices_.parse(choices_.set_of(l));
        const std::int64_t most = least.value_or(limit);
        const auto peak = planned_peak(config, *architecture_of(config), most);
        if (peak && *peak <= most) least = *peak;
      } catch (const RequestError& error) {
        prune("not valid: " + error.problems().front());
      }
    }
    return least;
  }

  // Returns the most frequent problem of the layouts whose sizes divide.
  std::string usual_problem() const {
    std::string problem = "the sizes of a layout have to divide the global batch and the model";
    std::int64_t most = 0;
    for (const auto& [reason, count] : result_.pruned) {
      if (reason.starts_with("not valid: ") && count > most) problem = reason, most = count;
    }
    return problem;
  }

  [[noreturn]] void nothing_fits() {
    const std::int64_t ranks = *std::max_element(request_.ranks.begin(), request_.ranks.end());
    const auto least = least_memory_on(ranks, std::numeric_limits<std::int64_t>::max());
    std::string text = fmt::format("trident search: nothing fits {} a rank on {}",
                                   bytes_text(memory_), counted(ranks, "rank"));
    if (!least) throw RequestError(text + ": no layout is valid: " + usual_problem());
    text += fmt::format(": the thriftiest layout takes {}, {} more", bytes_text(*least),
                        bytes_text(static_cast<double>(*least) - memory_));
    const std::int64_t devices = machine_.nodes * machine_.devices_per_node;
    machine_.nodes = 0;
    for (std::int64_t factor = 2; factor <= 64; factor *= 2) {
      const auto there = least_memory_on(ranks * factor, static_cast<std::int64_t>(memory_));
      if (!there) continue;
      const bool more = devices > 0 && ranks * factor > devices;
      throw RequestError(fmt::format(
          "{}; on {} ranks one takes {}{}", text, ranks * factor, bytes_text(*there),
          more ? fmt::format(", but {} has {} devices", machine_.name, devices) : std::string()));
    }
    throw RequestError(text + "; nor does one fit on up to 64 times as many ranks");
  }

  const LayoutRequest& request_;
  const LayoutChoices choices_;
  LayoutBounds bounds_;
  Machine machine_;
  double memory_;                    // bytes
  std::vector<FoundLayout> front_;   // for the current number of ranks
  std::vector<FoundLayout> others_;  // other layouts that fit, if `fastest` is set
  LayoutSearch result_;
};

}  // namespace

LayoutSearch search_layouts(const LayoutRequest& request) {
  return LayoutSearcher(request).run();
}

}  // namespace trident
