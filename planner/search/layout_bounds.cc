#include "planner/search/layout_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "engine/setup/layer_split.h"
#include "engine/setup/registry.h"
#include "parallel/topology.h"

namespace trident {
namespace {

bool is_whole_backward(const Action& action) {
  return action.kind == Kind::backward && !action.fused;
}

}  // namespace

LayoutBounds::LayoutBounds(const LayoutRequest& request, const LayoutChoices& choices)
    : request_(request),
      choices_(choices),
      machine_(request.machine),
      links_(request.machine),
      layers_(choices, machine_, assumptions_) {
  const Config& base = choices.base();
  machine_.peak_of(dtype_of(base.precision.dtype));  // throws if there is no rate
  machine_.device.skew = 0;
  links_.inside.latency = links_.across.latency = 1e-30;
  assumptions_ = Assumptions::of(base.zero_optimization, base.parallel);
  assumptions_.tensor_sums_overlap_products = choices.overlaps();
  if (!request.assume.empty()) assumptions_.assume(request.assume);
}

std::string LayoutBounds::bound(Layout& l) {
  const LayerCosts& of = layers_.of(l);
  if (!of.problem.empty()) return of.problem;
  const Lists& list = lists(l);
  if (!list.problem.empty()) return list.problem;
  const std::vector<std::int64_t>& layers = split(l, list);
  if (!l.even && choices_.set_of_held({"pipeline.layer_split"}).empty()) {
    Layout even = l;
    even.even = true;
    if (layers == split(even, list)) return "split by work as evenly as without";
  }
  // Sums in another order differ in their last digits.
  constexpr double rounded = 1 - 1e-9;
  const std::vector<std::int64_t> counted = layers_with_experts(layers);
  l.seconds = rounded * seconds(l, of, list, counted);
  l.bytes = rounded * bytes(l, of, list, counted);
  return "";
}

// Where some layers have experts, only these are counted, as the measured ones are.
std::vector<std::int64_t> LayoutBounds::layers_with_experts(
    const std::vector<std::int64_t>& split) const {
  const MoeConfig& moe = choices_.base().model.moe;
  const std::int64_t layers = std::accumulate(split.begin(), split.end(), std::int64_t{0});
  // Parsing the layout refuses a given split of another number of layers.
  if (!moe.has_experts() || layers != std::ssize(moe.layer_freq)) return split;
  std::vector<std::int64_t> counts;
  auto at = moe.layer_freq.begin();
  for (const std::int64_t count : split) {
    counts.push_back(std::accumulate(at, at + count, std::int64_t{0}));
    at += count;
  }
  return counts;
}

bool LayoutBounds::has_dense_layers() const {
  const MoeConfig& moe = choices_.base().model.moe;
  return moe.has_experts() && std::ranges::find(moe.layer_freq, 0) != moe.layer_freq.end();
}

LayoutBounds::Lists LayoutBounds::lists_of(const Layout& l) const {
  Layout one = l;
  one.tp = one.cp = one.dp = one.micro = one.ep = one.etp = 1;
  one.zero = 0;
  one.sequence_parallel = false;
  one.recompute = "none";
  one.even = true;
  std::vector<std::string> set = choices_.set_of_all(one);
  set.push_back(fmt::format("batch.global_batch_size={}", l.microbatches));
  set.emplace_back("batch.rampup_batch_size=null");
  for (const std::string& own :
       choices_.set_of_held({"pipeline.microbatch_group_size_per_vp_stage"})) {
    set.push_back(own);
  }
  Lists lists;
  const auto p = static_cast<std::size_t>(l.pp);
  const Config config = choices_.parse(set);
  const ScheduleConstraints& constraints = schedule_constraints(config);
  // The search takes seconds, and it needs times that aren't known here.
  if (constraints.searched) {
    lists.placement.resize(p);
    const auto ranks = rank_of_stages(static_cast<int>(l.pp), static_cast<int>(l.chunks), false);
    for (std::size_t s = 0; s < ranks.size(); ++s) {
      lists.placement[static_cast<std::size_t>(ranks[s])].push_back(static_cast<int>(s));
    }
    lists.in_flight.assign(p, 1.0 / static_cast<double>(l.chunks));
    lists.first.assign(p, 0);
    lists.last.assign(p, 0);
    return lists;
  }
  const Schedule schedule = schedule_of(config);
  lists.asynchronous = schedule.asynchronous();
  lists.placement = schedule.placement;
  lists.in_flight = peak_in_flight(schedule, 0);
  // If all backwards are full, the first rank both begins first and ends last, so iterations don't
  // overlap.
  lists.whole = std::ranges::all_of(schedule.ranks, [](const std::vector<Action>& list) {
    return std::ranges::all_of(
        list, [](const Action& a) { return a.kind == Kind::forward || is_whole_backward(a); });
  });
  for (const std::vector<Action>& list : schedule.ranks) {
    lists.first.push_back(lists.whole && !list.empty() ? list.front().stage : 0);
    lists.last.push_back(lists.whole && !list.empty() ? list.back().stage : 0);
  }
  return lists;
}

const LayoutBounds::Lists& LayoutBounds::lists(const Layout& l) {
  const auto [at, added] = lists_.try_emplace({l.schedule, l.pp, l.microbatches, l.chunks});
  if (!added) return at->second;
  try {
    at->second = lists_of(l);
  } catch (const RequestError& error) {
    at->second.problem = "not valid: " + error.problems().front();
  }
  return at->second;
}

// The costs by which layers are split (automatic_split()).
const ModelCosts& LayoutBounds::costs(const Layout& l) {
  const auto [at, added] = costs_.try_emplace(l.recompute);
  if (!added) return at->second;
  const Config config = choices_.parse(choices_.set_of_all({.recompute = l.recompute}));
  return at->second = model_costs(config, *architecture_of(config));
}

// Returns the number of layers of each stage.
const std::vector<std::int64_t>& LayoutBounds::split(const Layout& l, const Lists& lists) {
  const auto [at, added] =
      splits_.try_emplace({l.schedule, l.pp, l.chunks, l.even, l.even ? "" : l.recompute});
  if (!added) return at->second;
  std::vector<std::int64_t>& layers = at->second;
  const std::int64_t stages = l.pp * l.chunks, all = choices_.base().model.num_layers;
  if (const auto held = choices_.held_split(); !held.empty()) return layers = held;
  if (l.even) {
    for (std::int64_t s = 0; s < stages; ++s) {
      layers.push_back(all / stages + (s < all % stages ? 1 : 0));
    }
    return layers;
  }
  const ModelCosts& costs = this->costs(l);
  SplitProblem problem{.layers = all,
                       .layer = costs.mean_layer().total(),
                       .each_layer = costs.different_layers(),
                       .first = costs.embedding.total(),
                       .last = costs.head.total(),
                       .rank_of_stage = std::vector<int>(static_cast<std::size_t>(stages), 0)};
  for (std::size_t rank = 0; rank < lists.placement.size(); ++rank) {
    for (const int stage : lists.placement[rank]) {
      problem.rank_of_stage[static_cast<std::size_t>(stage)] = static_cast<int>(rank);
    }
  }
  return layers = balanced_split(problem);
}

bool LayoutBounds::sums_each_micro_batch(const Layout& l) {
  if (l.sharers() == 1 || l.microbatches == 1) return false;
  const auto [at, added] = sums_.try_emplace(l.zero, false);
  if (!added) return at->second;
  Layout one{.dp = 2, .zero = l.zero};
  one.microbatches = 2;
  try {
    std::vector<std::string> set = choices_.set_of_all(one);
    set.emplace_back("batch.global_batch_size=4");
    set.emplace_back("batch.rampup_batch_size=null");
    for (const std::string& own :
         choices_.set_of_held({"zero_optimization.reduce_each_micro_batch"})) {
      set.push_back(own);
    }
    at->second = reduces_each_micro_batch(choices_.parse(set));
  } catch (const RequestError&) {
    at->second = false;
  }
  return at->second;
}

const LayoutBounds::World& LayoutBounds::world(const Layout& l) {
  const auto [at, added] = worlds_.try_emplace({l.tp, l.cp, l.pp, l.dp, l.ep, l.etp});
  if (!added) return at->second;
  at->second.sharers = {l.sharers(), l.sharers()};
  const Layout one{.tp = l.tp, .cp = l.cp, .pp = l.pp, .dp = l.dp, .ep = l.ep, .etp = l.etp};
  std::vector<std::string> set = choices_.set_of_all(one);
  set.push_back(fmt::format("batch.global_batch_size={}", l.dp));
  set.emplace_back("batch.rampup_batch_size=null");
  try {
    const Config config = choices_.parse(set);
    at->second.sharers =
        group_shape(mesh_of(config.parallel), {}, "data", 0, machine_.devices_per_node);
    if (l.holders() > 1 && choices_.base().model.moe.has_experts()) {
      at->second.expert_sharers =
          group_shape(mesh_of(config.parallel), {}, traffic_name(Group::expert_shard).value(), 0,
                      machine_.devices_per_node);
    }
    at->second.library = static_cast<double>(library_bytes(config));
    if (l.exchanges()) {
      at->second.exchange =
          group_shape(mesh_of(config.parallel), {}, traffic_name(Group::exchange).value(), 0,
                      machine_.devices_per_node);
    }
  } catch (const RequestError&) {
    return at->second;  // simulating a layout of this kind reports the error
  }
  return at->second;
}

double LayoutBounds::over_holders(const Layout& l, const LayerCosts& layer, Operation operation,
                                  double bytes) {
  const World& of = world(l);
  return collective_seconds(links_, operation, bytes * (1 - layer.experts), of.sharers) +
         collective_seconds(links_, operation, bytes * layer.experts, of.expert_sharers);
}

double LayoutBounds::gradient_sums(const Layout& l, const LayerCosts& layer, std::int64_t layers) {
  const Operation sum = l.zero == 0 ? Operation::all_reduce : Operation::reduce_scatter;
  const double units = static_cast<double>(layers) / static_cast<double>(layer.unit);
  return over_holders(l, layer, sum, layer.gradients.layer * units);
}

double LayoutBounds::updated_weights(const Layout& l, const LayerCosts& layer,
                                     std::int64_t layers) {
  if (l.zero != 1 && l.zero != 2) return 0;
  const double units = static_cast<double>(layers) / static_cast<double>(layer.unit);
  return over_holders(l, layer, Operation::all_gather, layer.weights.layer * units);
}

// Weights are gathered for forward and for backward. One layer's may stay between two actions.
double LayoutBounds::sent_overlapped(const Layout& l, const LayerCosts& layer,
                                     std::int64_t layers) {
  if (!assumptions_.gradients_overlap_backward || !sums_each_micro_batch(l)) return 0;
  double seconds = gradient_sums(l, layer, layers);
  const double units = static_cast<double>(layers) / static_cast<double>(layer.unit);
  if (l.zero == 3 && units > 1) {
    seconds += collective_seconds(links_, Operation::all_gather, layer.gathered * (2 * units - 2),
                                  world(l).sharers);
  }
  return seconds;
}

double LayoutBounds::seconds(const Layout& l, const LayerCosts& layer, const Lists& lists,
                             const std::vector<std::int64_t>& split) {
  const auto stages = split.size();
  struct Stage {
    double forward = 0, backward = 0;               // of a micro-batch
    double before_forward = 0, after_backward = 0;  // of the stages ahead
  };
  std::vector<Stage> of(stages);
  double forwards = 0, backwards = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    const double units = static_cast<double>(split[s]) / static_cast<double>(layer.unit);
    const bool first = s == 0, last = s + 1 == stages;
    const auto exchanges = [&](const CostParts& sent) {
      return collective_seconds(links_, Operation::all_to_all_v, sent.of(units, first, last),
                                world(l).exchange);
    };
    const double forward = layer.forward.of(units, first, last) + exchanges(layer.sent_forward);
    const double backward = layer.backward.of(units, first, last) + exchanges(layer.sent_backward);
    of[s] = {forward, backward, forwards, backwards};
    forwards += forward, backwards += backward;
  }
  const auto microbatches = static_cast<double>(l.microbatches);
  double most = 0;
  for (std::size_t place = 0; place < lists.placement.size(); ++place) {
    double work = 0;
    std::int64_t layers = 0;
    for (const int stage : lists.placement[place]) {
      const auto s = static_cast<std::size_t>(stage);
      work += of[s].forward + of[s].backward;
      layers += split[s];
    }
    const double sent = sent_overlapped(l, layer, layers);
    work = microbatches * (work + machine_.device.taken_by_collectives * sent);
    double end = std::max(work, microbatches * sent);
    if (!lists.asynchronous) {
      const Stage& last = of[static_cast<std::size_t>(lists.last[place])];
      work += of[static_cast<std::size_t>(lists.first[place])].before_forward;
      end = std::max(end, work + last.after_backward);
      // The last backward's gradients are summed from its begin on.
      if (lists.whole) {
        const std::int64_t summed = split[static_cast<std::size_t>(lists.last[place])];
        end = std::max(end, work - last.backward + gradient_sums(l, layer, summed));
      }
      end += updated_weights(l, layer, layers);
    }
    most = std::max(most, end);
  }
  return most;
}

// For a place that holds both ends of the model: an embedding table that both use counts once.
double LayoutBounds::held(const CostParts& parts, double units, bool has_first,
                          bool has_last) const {
  const ModelConfig& model = choices_.base().model;
  const bool shared = model.tie_word_embeddings || model.mtp_num_layers > 0;
  const double both = has_first && has_last && shared ? std::min(parts.first, parts.last) : 0;
  return parts.of(units, has_first, has_last) - both;
}

double LayoutBounds::bytes(const Layout& l, const LayerCosts& layer, const Lists& lists,
                           const std::vector<std::int64_t>& split) {
  const auto stages = split.size();
  const double data = static_cast<double>(l.sharers());
  double most = 0;
  for (std::size_t place = 0; place < lists.placement.size(); ++place) {
    double units = 0, smallest = std::numeric_limits<double>::infinity();
    bool has_first = false, has_last = false;
    for (const int stage : lists.placement[place]) {
      const auto s = static_cast<std::size_t>(stage);
      const double own = static_cast<double>(split[s]) / static_cast<double>(layer.unit);
      units += own;
      smallest = std::min(smallest, own);
      has_first = has_first || s == 0;
      has_last = has_last || s + 1 == stages;
    }
    // ZeRO shards a part from this stage on; an expert's over its holders.
    const auto sharded = [&](const CostParts& parts, int stage) {
      const double all = held(parts, units, has_first, has_last);
      if (l.zero < stage) return all;
      const double experts =
          parts.layer * units * layer.experts + (has_last ? parts.last * layer.last_experts : 0);
      return (all - experts) / data + experts / static_cast<double>(l.holders());
    };
    const double gradients = sharded(layer.gradients, 2);
    // A factored state isn't in proportion to the elements.
    const double ways = std::max(data, static_cast<double>(l.holders()));
    const double factored =
        held(layer.state, units, has_first, has_last) / (l.zero >= 1 ? ways : 1);
    const bool is_factored = layer.experts > 0 && choices_.base().optimizer.type == "Adafactor";
    const double states =
        sharded(layer.weights, 3) + gradients + (is_factored ? factored : sharded(layer.state, 1));
    const double chunks_in_flight = lists.in_flight[place] * static_cast<double>(l.chunks);
    double dynamic = chunks_in_flight * smallest * layer.saved_activations;
    // The measured groups of recomputed layers have experts in each layer.
    const bool is_measured = layer.unit == 1 || !has_dense_layers();
    // Of a last place without experts nothing is measured.
    if (has_last && l.chunks == 1 && units >= 1 && is_measured) {
      dynamic = std::max(
          dynamic, units < 2 ? layer.one_last
                             : layer.two_last + (units - 2) * (layer.two_last - layer.one_last));
    }
    // A single micro-batch may reach its peak before it has any gradient.
    const double before = l.microbatches == 1 ? states - gradients : states;
    most = std::max({most, states, before + dynamic});
  }
  return most + world(l).library;
}

}  // namespace trident
