#include "training/lab/layout_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "parallel/topology.h"
#include "scheduler/analytic.h"
#include "training/plan/fit.h"
#include "training/plan/planned_rank.h"
#include "training/setup/from_config.h"
#include "training/setup/kinds.h"

namespace trident {
namespace {

// A layout before it is a config. Axes by their short names in the config: tensor is tp, and so on.
struct Layout {
  std::int64_t tp = 1, pp = 1, dp = 1, chunks = 1, micro = 1, zero = 0;
  std::string schedule = "1f1b", recompute = "none";
  bool sequence_parallel = false;
  std::int64_t microbatches = 1;
  double seconds = 0, bytes = 0;  // estimated
};

// What one layer and the rest of the model take of a device with all of the pipeline.
struct Piece {
  std::string problem;                                                                // "": none
  double forward_layer = 0, backward_layer = 0, forward_ends = 0, backward_ends = 0;  // seconds
  std::array<double, category_count> layer{}, ends{};  // bytes, of one micro-batch in flight
  double around = 0;                                   // seconds of the update, of each layer
};

std::vector<std::int64_t> divisors(std::int64_t n, std::int64_t most) {
  std::vector<std::int64_t> list;
  for (std::int64_t d = 1; d <= std::min(n, most); ++d) {
    if (n % d == 0) list.push_back(d);
  }
  return list;
}

// Micro-batches in flight on the first rank, in shares (REFERENCE of the kinds: schedules.h).
double in_flight(const Layout& l) {
  const auto p = static_cast<double>(l.pp), m = static_cast<double>(l.microbatches),
             v = static_cast<double>(l.chunks);
  if (l.schedule == "interleaved_1f1b") return std::min(m, p * (1 + (p - 1) / (p * v)));
  return std::min(m, p);
}

using namespace nlohmann::literals;

class LayoutSearcher {
 public:
  explicit LayoutSearcher(const LayoutRequest& request)
      : request_(request),
        memory_(request.memory > 0 ? static_cast<double>(request.memory)
                                   : request.machine.device.memory) {
    for (const MeshAxis& axis : ParallelConfig{}.axes()) keys_[axis.name] = "parallel." + axis.key;
    const auto given = nlohmann::json::parse(request.written);
    overlaps_ = given.value("/parallel/tp_comm_overlap"_json_pointer, false);
    base_ = parse(set_of({}));
    request.machine.peak_of(dtype_of(base_.precision.dtype));  // throws where there is none
    library_ = static_cast<double>(library_bytes(base_));
    habits_ = Habits::of(base_);
    habits_.tensor_sums_beside_products = overlaps_;
    if (!request.assume.empty()) habits_.assume(request.assume);
  }

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
    throw RequestError(fmt::format("--ranks: {}: {} has {} nodes of {} devices, {} in all", ranks,
                                   machine.name, machine.nodes, machine.devices_per_node, there));
  }

  Config parse(const std::vector<std::string>& set) const {
    return parse_config(request_.written, set, request_.load).config;
  }

  std::vector<std::string> set_of(const Layout& l) const {
    const auto yes = [](bool value) { return value ? "true" : "false"; };
    return {fmt::format("{}={}", keys_.at("dp"), l.dp),
            fmt::format("{}={}", keys_.at("tp"), l.tp),
            fmt::format("{}={}", keys_.at("pp"), l.pp),
            fmt::format("parallel.virtual_pipeline_model_parallel_size={}", l.chunks),
            fmt::format("parallel.sequence_parallel={}", yes(l.sequence_parallel)),
            fmt::format("parallel.tp_comm_overlap={}", yes(l.sequence_parallel && overlaps_)),
            fmt::format("pipeline.schedule={}", l.schedule),
            "pipeline.layer_split=null",
            fmt::format("batch.micro_batch_size={}", l.micro),
            "batch.gradient_accumulation_steps=null",
            fmt::format("batch.global_batch_size={}", request_.global_batch_size),
            fmt::format("zero_optimization.stage={}", l.zero),
            "zero_optimization.reduce_each_micro_batch=null",
            fmt::format("activation_checkpointing.granularity={}", l.recompute),
            "runtime.ranks_per_node=null"};
  }

  // --- Pieces ---

  // Times and memory of a model of so many layers on one pipeline rank.
  struct Measured {
    double forward = 0, backward = 0, around = 0;
    PlannedMemory memory;
  };
  Measured measure(const Layout& l, std::int64_t layers) const {
    Layout one = l;
    one.dp = one.pp = one.chunks = 1;
    one.schedule = "1f1b";
    one.zero = 0;
    std::vector<std::string> set = set_of(one);
    set.push_back(fmt::format("model.num_layers={}", layers));
    set.push_back(fmt::format("batch.global_batch_size={}", 2 * l.micro));
    const Config config = parse(set);
    const auto architecture = architecture_of(config);
    const Schedule schedule = schedule_of(config);
    const RankPlanner planner(config, *architecture, schedule);
    const TracedStep step = planner.trace(0);
    const RankCosts costs(config, request_.machine, mesh_of(config), ends_of(schedule), habits_,
                          step, schedule.placement[0], 0);
    Measured measured;
    const auto of = costs.of(schedule.ranks[0], schedule.placement[0]);
    measured.forward = of[2]->seconds.total();
    measured.backward = of[1]->seconds.total();
    measured.around = costs.around().seconds.total();
    measured.memory = planner.plan(0).memory;
    return measured;
  }

  const Piece& piece(const Layout& l) {
    const auto key = std::tuple(l.tp, l.micro, l.sequence_parallel, l.recompute);
    const auto [at, added] = pieces_.try_emplace(key);
    if (!added) return at->second;
    Piece& piece = at->second;
    try {
      const Measured one = measure(l, 1), two = measure(l, 2);
      piece.forward_layer = two.forward - one.forward;
      piece.backward_layer = two.backward - one.backward;
      piece.forward_ends = std::max(0.0, one.forward - piece.forward_layer);
      piece.backward_ends = std::max(0.0, one.backward - piece.backward_layer);
      piece.around = two.around - one.around;
      for (std::size_t c = 0; c < piece.layer.size(); ++c) {
        const auto first = static_cast<double>(one.memory.peak[c]),
                   second = static_cast<double>(two.memory.peak[c]);
        piece.layer[c] = std::max(0.0, second - first);
        piece.ends[c] = std::max(0.0, first - piece.layer[c]);
      }
    } catch (const RequestError& error) {
      piece.problem = "not valid: " + error.problems().front();
    }
    return piece;
  }

  // --- Estimates ---

  void prune(const std::string& reason) { ++result_.pruned[reason]; }

  // Largest number of layers of a rank.
  double share(const Layout& l) const {
    return std::ceil(static_cast<double>(base_.model.num_layers) / static_cast<double>(l.pp));
  }

  void estimate(Layout& l) {
    const Piece& of = piece(l);
    const double layers = share(l), m = static_cast<double>(l.microbatches);
    const double data = static_cast<double>(l.dp);
    const auto part = [&](Category c) {
      const auto at = static_cast<std::size_t>(c);
      return of.layer[at] * layers + of.ends[at] / (l.pp > 1 ? 2 : 1);
    };
    const double weights = part(Category::parameter), gradients = part(Category::gradient);
    const auto activation = static_cast<std::size_t>(Category::activation);
    l.bytes = weights / (l.zero == 3 ? data : 1) + gradients / (l.zero >= 2 ? data : 1) +
              part(Category::optimizer) / (l.zero >= 1 ? data : 1) +
              of.layer[activation] * layers * in_flight(l) + of.ends[activation] + library_;

    // The last stage has the head; the split evens out what it can.
    const double ends = (of.forward_ends + of.backward_ends) / static_cast<double>(l.pp);
    const double forward = of.forward_layer * layers, backward = of.backward_layer * layers;
    double compute = m * (forward + backward + ends);
    if (l.pp > 1) {
      ScheduleRequest request{.kind = l.schedule,
                              .stages = static_cast<int>(l.pp),
                              .microbatches = static_cast<int>(l.microbatches),
                              .chunks = static_cast<int>(l.chunks)};
      const double weight = std::min(forward, backward / 2);
      const AnalyticBubble bubble =
          analytic_bubble(complete(request), {forward, backward - weight, weight});
      const double ratio =
          std::min(0.95, bubble.bubble_ratio.value_or(bubble.bubble_ratio_span.value_or(0)));
      compute /= 1 - ratio;
    }
    const std::int64_t near = std::max<std::int64_t>(1, request_.machine.devices_per_node / l.tp);
    const GroupShape shape{l.dp, std::min(l.dp, near)};
    const double sums =
        collective_seconds(request_.machine, Operation::all_reduce, gradients, shape);
    // Stages 2 and 3 hold their part alone, so each micro-batch's is summed; else the last one's.
    const double times = l.zero >= 2 ? m : 1;
    double exposed =
        times * (habits_.gradients_beside_backward ? std::max(0.0, sums - backward) : sums);
    if (l.zero == 3) {
      const double gathers =
          2 * m * collective_seconds(request_.machine, Operation::all_gather, weights, shape);
      exposed += std::max(0.0, gathers - 0.8 * m * (forward + backward));
    }
    l.seconds = compute + exposed + of.around * layers / (l.zero >= 1 ? data : 1);
  }

  // --- Enumeration ---

  void consider(Layout l) {
    ++result_.considered;
    if (!piece(l).problem.empty()) return prune(piece(l).problem);
    estimate(l);
    if (l.bytes > 1.15 * memory_) return prune("needs too much memory, estimated");
    layouts_.push_back(std::move(l));
  }

  void with_schedules(Layout l) {
    const auto m = l.microbatches;
    const std::int64_t layers = base_.model.num_layers;
    if (l.pp == 1) return with_states(l);
    for (const char* schedule : {"1f1b", "zb_h1"}) {
      l.schedule = schedule;
      with_states(l);
    }
    for (const std::int64_t chunks : {2, 3, 4, 6, 8}) {
      l.chunks = chunks;
      if (l.pp * chunks > layers) continue;
      if (chunks == 2 && m >= 2 * l.pp) {
        l.schedule = "zbv";
        with_states(l);
      }
      if (m % l.pp != 0) {
        prune("interleaving needs micro-batches in multiples of the pipeline");
        continue;
      }
      l.schedule = "interleaved_1f1b";
      with_states(l);
    }
  }

  void with_states(Layout l) {
    for (const char* recompute : {"none", "selective", "full"}) {
      l.recompute = recompute;
      for (l.zero = 0; l.zero <= (l.dp > 1 ? 3 : 0); ++l.zero) {
        for (const bool sequence : {false, true}) {
          if (sequence && l.tp == 1) continue;
          l.sequence_parallel = sequence;
          consider(l);
        }
      }
    }
  }

  void enumerate(std::int64_t ranks) {
    layouts_.clear();
    const std::int64_t global = base_.batch.global_batch_size;
    for (const std::int64_t tp : divisors(ranks, ranks)) {
      if (tp > request_.machine.devices_per_node) {
        prune("tensor parallelism across nodes");
        continue;
      }
      for (const std::int64_t pp : divisors(ranks / tp, ranks)) {
        if (pp > base_.model.num_layers) {
          prune("more stages than layers");
          continue;
        }
        const std::int64_t dp = ranks / tp / pp;
        if (global % dp != 0) {
          prune("the global batch doesn't divide by the copies of the model");
          continue;
        }
        for (const std::int64_t micro : divisors(global / dp, 64)) {
          with_schedules(
              {.tp = tp, .pp = pp, .dp = dp, .micro = micro, .microbatches = global / dp / micro});
        }
      }
    }
  }

  // --- Whole ---

  // Microseconds that simulating one took on an AMD EPYC of 2023: traced layers and replayed
  // actions.
  std::int64_t effort(const Layout& l) const {
    const std::int64_t traced =
        std::min(l.microbatches, std::max<std::int64_t>(16, 4 * l.pp * l.chunks));
    const auto layers = static_cast<std::int64_t>(share(l));
    return 5000 + 130 * std::min<std::int64_t>(l.pp, 3) * traced * layers +
           12 * l.microbatches * l.chunks * l.pp;
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
      left -= effort(l);
      least_bytes = std::min(least_bytes, l.bytes);
      if (auto plan = simulate(l)) {
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
      left -= effort(l);
      if (auto plan = simulate(l)) found.push_back(std::move(*plan));
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
      if (plan.config.stages() == 1) continue;
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
    return simulate(FoundLayout{.set = set_of(l), .estimate = l.seconds, .effort = effort(l)});
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
          simulate_step(plan.config, *architecture_of(plan.config), request_.machine, habits);
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
    plan.recomputed = 1 - step.model_flops / step.hardware_flops;
    const auto ranks = static_cast<double>(step.ranks.size());
    for (const RankSeconds& rank : step.ranks) {
      double groups = rank.exposed + rank.messages;
      for (const auto& [group, seconds] : rank.busy.groups) groups += seconds;
      plan.waiting += rank.waiting / step.seconds / ranks;
      plan.communication += groups / step.seconds / ranks;
      plan.kernels += rank.busy.kernels / step.seconds / ranks;
    }
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
    return layouts_.empty() ? std::numeric_limits<double>::infinity()
                            : static_cast<double>(thriftiest_);
  }

  [[noreturn]] void nothing_fits() {
    const std::int64_t ranks = *std::max_element(request_.ranks.begin(), request_.ranks.end());
    const double least = thriftiest_on(ranks);
    std::string text =
        fmt::format("search: nothing fits {:.3f} GB a rank on {} ranks", memory_ * 1e-9, ranks);
    if (!std::isfinite(least)) {
      throw RequestError(text +
                         ": no layout is valid: the global batch and the model have to divide");
    }
    text += fmt::format(": the thriftiest layout that was planned takes {:.3f} GB, {:.3f} GB more",
                        least * 1e-9, (least - memory_) * 1e-9);
    for (std::int64_t factor = 2; factor <= 64; factor *= 2) {
      const double there = thriftiest_on(ranks * factor);
      if (there > memory_) continue;
      throw RequestError(
          fmt::format("{}; on {} ranks one takes {:.3f} GB", text, ranks * factor, there * 1e-9));
    }
    throw RequestError(text + "; nor was one found on up to 64 times as many ranks");
  }

  const LayoutRequest& request_;
  double memory_, library_ = 0;  // bytes
  bool overlaps_ = false;        // sums over the tensor group go beside products, where they can
  Config base_;
  Habits habits_;
  std::map<std::string, std::string> keys_;  // of the axes
  std::map<std::tuple<std::int64_t, std::int64_t, bool, std::string>, Piece> pieces_;
  std::vector<Layout> layouts_;
  std::int64_t thriftiest_ = std::numeric_limits<std::int64_t>::max();
  LayoutSearch result_;
};

}  // namespace

LayoutSearch search_layouts(const LayoutRequest& request) {
  return LayoutSearcher(request).run();
}

}  // namespace trident
