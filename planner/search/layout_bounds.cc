#include "planner/search/layout_bounds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

// Returns the number of devices per node for which a tensor group of `tp` ranks with this stride
// lies on no more nodes than the best group of any layout does on nodes of `devices` devices.
std::int64_t whole_groups(std::int64_t devices, std::int64_t tp, std::int64_t stride) {
  std::int64_t inside = std::min(tp, devices);
  while (tp % inside != 0) ++inside;  // each node holds an equal part of a group
  const std::int64_t span = inside * stride;
  return inside == tp && span <= devices ? devices - devices % span : span;
}

// The exchange of tokens is left out: fewer ranks take less time for theirs.
double least_of(const std::vector<const ActionCost*>& costs, const std::vector<Action>& list,
                Kind kind) {
  const std::string exchange = traffic_name(Group::exchange).value();
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].kind != kind) continue;
    const Seconds& seconds = costs[i]->seconds;
    const auto waits = seconds.groups.find(exchange);
    least =
        std::min(least, seconds.total() - (waits == seconds.groups.end() ? 0.0 : waits->second));
  }
  return least;
}

}  // namespace

LayoutBounds::LayoutBounds(const LayoutRequest& request, const LayoutChoices& choices)
    : request_(request), choices_(choices), machine_(request.machine), links_(request.machine) {
  const Config& base = choices.base();
  machine_.peak_of(dtype_of(base.precision.dtype));  // throws if there is no rate
  machine_.device.skew = 0;
  links_.inside.latency = links_.across.latency = 1e-30;
  assumptions_ = Assumptions::of(base);
  assumptions_.tensor_sums_overlap_products = choices.overlaps();
  if (!request.assume.empty()) assumptions_.assume(request.assume);
}

std::string LayoutBounds::bound(Layout& l) {
  const LayerCosts& of = layer(l);
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

// Where some layers have experts, the measured ones do, and the bounds take the others for nothing.
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

double LayoutBounds::Measured::dynamic() const {
  // Copies for saves may use spare memory.
  const auto fixed = memory.of(Category::parameter) + memory.of(Category::gradient) +
                     memory.of(Category::optimizer) + memory.of(Category::staging);
  return static_cast<double>(memory.peak_total - fixed) - messages;
}

// Measures the first place of a pipeline of two ranks, with `first` layers, and the last place,
// with `last` layers.
std::array<LayoutBounds::Measured, 2> LayoutBounds::measure(const Layout& l, std::int64_t first,
                                                            std::int64_t last) const {
  constexpr int microbatches = 4;
  Layout small = l;
  small.dp = l.least_data();
  small.chunks = 1;
  small.pp = 2;
  small.schedule = "1f1b";
  small.zero = 0;
  small.even = true;
  std::vector<std::string> set = choices_.set_of_all(small);
  set.push_back(fmt::format("model.num_layers={}", first + last));
  if (const auto window = choices_.base().model.sliding_window) {
    // Bounds take layers with the window for all, as these cost least.
    std::vector<std::int64_t> all(static_cast<std::size_t>(first + last));
    std::iota(all.begin(), all.end(), 0);
    set.push_back(fmt::format("model.sliding_window={}", *window));
    set.push_back(fmt::format("model.window_layers=[{}]", fmt::join(all, ",")));
  }
  if (choices_.base().model.moe.has_experts()) set.emplace_back("model.moe.layer_freq=1");
  set.push_back(fmt::format("pipeline.layer_split=[{},{}]", first, last));
  set.push_back(fmt::format("batch.global_batch_size={}", microbatches * l.micro * small.dp));
  set.emplace_back("batch.rampup_batch_size=null");
  const Config config = choices_.parse(set);
  const auto architecture = architecture_of(config);
  const Schedule schedule = schedule_of(config);
  const RankPlanner planner(config, *architecture, schedule);
  const std::vector<int> pipeline = mesh_of(config.parallel).pipeline(0);
  Machine machine = machine_;
  machine.devices_per_node =
      whole_groups(machine_.devices_per_node, l.tp, pipeline[1] - pipeline[0] == 1 ? 2 : 1);
  const std::int64_t persistent = config.zero_optimization.stage3_param_persistence_threshold;
  std::array<Measured, 2> places;
  for (std::size_t place = 0; place < places.size(); ++place) {
    const TracedStep step = planner.trace(static_cast<int>(place));
    const RankCosts costs(config, machine, mesh_of(config.parallel), ends_of(schedule),
                          assumptions_, step, schedule.placement[place], pipeline[place]);
    const auto of = costs.of(schedule.ranks[place], schedule.placement[place]);
    Measured& measured = places[place];
    measured.forward = least_of(of, schedule.ranks[place], Kind::forward);
    measured.backward = least_of(of, schedule.ranks[place], Kind::backward);
    const PlannedRank planned = planner.plan_memory(static_cast<int>(place));
    measured.memory = planned.memory;
    // The received message, the next one and a gradient; with a single stage there are no messages.
    measured.messages =
        3 * static_cast<double>(l.micro * config.data.sequence_length * config.model.hidden_size) *
        static_cast<double>(size_of(dtype_of(config.precision.dtype))) /
        static_cast<double>(l.sequence_parallel ? l.tp : 1);
    for (const BucketLayout& bucket : planned.buckets) {
      for (const BucketEntry& entry : bucket.entries) {
        const bool of_expert = bucket.data.are_of_expert();
        (of_expert ? measured.experts : measured.others) += static_cast<double>(entry.numel);
        if (of_expert) continue;  // its fewer holders gather it
        if (entry.numel < persistent) continue;
        measured.gathered += static_cast<double>(entry.numel) *
                             static_cast<double>(size_of(dtype_of(config.precision.dtype)));
      }
    }
  }
  return places;
}

LayoutBounds::LayerCosts LayoutBounds::measured_piece(const Layout& l) const {
  LayerCosts layer;
  Layout one = l;
  one.dp = one.pp = one.chunks = one.ep = 1;
  one.etp = 1;
  one.schedule = "1f1b";
  one.zero = 0;
  layer.unit = std::max<std::int64_t>(
      1, recompute_layers(choices_.parse(choices_.set_of_all(one)).activation_checkpointing));
  const std::int64_t u = layer.unit;
  const auto [first_one, last_two] = measure(l, u, 2 * u);
  const auto [first_two, last_one] = measure(l, 2 * u, u);
  const auto parts = [&](auto value) {
    const double first = value(first_two) - value(first_one);
    const double last = value(last_two) - value(last_one);
    return Parts{std::min(first, last), std::max(0.0, value(first_one) - first),
                 std::max(0.0, value(last_one) - last)};
  };
  const auto of = [](Category category) {
    return [category](const Measured& m) { return static_cast<double>(m.memory.of(category)); };
  };
  layer.forward = parts([](const Measured& m) { return m.forward; });
  layer.backward = parts([](const Measured& m) { return m.backward; });
  layer.weights = parts(of(Category::parameter));
  layer.gradients = parts(of(Category::gradient));
  layer.state = parts(of(Category::optimizer));
  layer.gathered = last_two.gathered - last_one.gathered;
  const double experts = last_two.experts - last_one.experts;
  const double others = last_two.others - last_one.others;
  layer.experts = experts / std::max(1.0, experts + others);
  const double in_head = last_one.experts - experts;
  layer.last_experts = in_head / std::max(1.0, in_head + last_one.others - others);
  // The first place holds two micro-batches at once.
  layer.saved_activations = std::max(0.0, std::min((first_two.dynamic() - first_one.dynamic()) / 2,
                                                   last_two.dynamic() - last_one.dynamic()));
  layer.one_last = last_one.dynamic();
  layer.two_last = last_two.dynamic();
  return layer;
}

// Of the rows of the rank that has the most, those that one with the fewest has, where rows can't
// be shared equally.
double LayoutBounds::least_share_of_rows(const Layout& l) const {
  const Config& base = choices_.base();
  const MoeConfig& moe = base.model.moe;
  if (!moe.has_experts() || !l.exchanges()) return 1;
  const std::int64_t rows = l.micro * base.data.sequence_length / l.tp * moe.router_topk;
  const std::int64_t least = rows / moe.num_experts, most = least + (rows % moe.num_experts > 0);
  return static_cast<double>(least) / static_cast<double>(std::max<std::int64_t>(1, most));
}

// Where ranks exchange tokens, the measured ones hold an expert each, which reads the fewest
// weights and keeps the smallest states; bytes() scales these.
const LayoutBounds::LayerCosts& LayoutBounds::layer(const Layout& l) {
  const auto [at, added] =
      layer_costs_.try_emplace({l.tp, l.exchanges(), l.micro, l.sequence_parallel, l.recompute});
  if (!added) return at->second;
  Layout measured = l;
  if (choices_.base().model.moe.has_experts()) {
    measured.ep = l.exchanges() ? choices_.base().model.moe.num_experts : 1;
    measured.etp = 1;
  }
  try {
    LayerCosts& costs = at->second = measured_piece(measured);
    costs.expert_ranks = static_cast<double>(measured.ep);
    // The measured rank is the one that the plan gives the most rows.
    const double least = least_share_of_rows(l);
    for (double* const cost :
         {&costs.forward.layer, &costs.forward.last, &costs.backward.layer, &costs.backward.last,
          &costs.saved_activations, &costs.one_last, &costs.two_last}) {
      *cost *= least;
    }
  } catch (const RequestError& error) {
    at->second.problem = "not valid: " + error.problems().front();
  }
  return at->second;
}

LayoutBounds::Lists LayoutBounds::lists_of(const Layout& l) const {
  Layout one = l;
  one.tp = one.dp = one.micro = one.ep = one.etp = 1;
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
  const bool whole = std::ranges::all_of(schedule.ranks, [](const std::vector<Action>& list) {
    return std::ranges::all_of(
        list, [](const Action& a) { return a.kind == Kind::forward || is_whole_backward(a); });
  });
  for (const std::vector<Action>& list : schedule.ranks) {
    lists.first.push_back(whole && !list.empty() ? list.front().stage : 0);
    lists.last.push_back(whole && !list.empty() ? list.back().stage : 0);
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
  if (l.dp == 1 || l.microbatches == 1) return false;
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
  const auto [at, added] = worlds_.try_emplace({l.tp, l.pp, l.dp, l.ep, l.etp});
  if (!added) return at->second;
  at->second.sharers = {l.dp, l.dp};
  const Layout one{.tp = l.tp, .pp = l.pp, .dp = l.dp, .ep = l.ep, .etp = l.etp};
  std::vector<std::string> set = choices_.set_of_all(one);
  set.push_back(fmt::format("batch.global_batch_size={}", l.dp));
  set.emplace_back("batch.rampup_batch_size=null");
  try {
    const Config config = choices_.parse(set);
    at->second.sharers =
        group_shape(mesh_of(config.parallel), {}, "data", 0, machine_.devices_per_node);
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

// Returns the seconds of a micro-batch's gradient sums and weight gathers, which run one after the
// other.
double LayoutBounds::sent_overlapped(const Layout& l, const LayerCosts& layer,
                                     std::int64_t layers) {
  if (!assumptions_.gradients_overlap_backward || !sums_each_micro_batch(l)) return 0;
  const GroupShape& shape = world(l).sharers;
  const double units = static_cast<double>(layers) / static_cast<double>(layer.unit);
  const Operation sum = l.zero == 0 ? Operation::all_reduce : Operation::reduce_scatter;
  const double others = 1 - layer.experts;  // experts have fewer holders
  double seconds = collective_seconds(links_, sum, layer.gradients.layer * units * others, shape);
  // Weights are gathered for forward and for backward. One layer's may stay between two actions.
  if (l.zero == 3 && units > 1) {
    seconds +=
        collective_seconds(links_, Operation::all_gather, layer.gathered * (2 * units - 2), shape);
  }
  return seconds;
}

// Returns the seconds of a layer's exchanges of tokens in forward, and as many in backward: there
// and back.
double LayoutBounds::exchange_seconds(const Layout& l) {
  if (!l.exchanges()) return 0;
  const Config& base = choices_.base();
  const auto rows = static_cast<double>(l.micro * base.data.sequence_length *
                                        base.model.moe.router_topk * l.expert_tensor());
  const double bytes = rows / static_cast<double>(l.tp) *
                       static_cast<double>(base.model.hidden_size) *
                       static_cast<double>(size_of(dtype_of(base.precision.dtype)));
  return 2 * collective_seconds(links_, Operation::all_to_all_v, bytes, world(l).exchange);
}

double LayoutBounds::seconds(const Layout& l, const LayerCosts& layer, const Lists& lists,
                             const std::vector<std::int64_t>& split) {
  const auto stages = split.size();
  std::vector<double> before_forward(stages, 0), after_backward(stages, 0);
  std::vector<Parts> of(stages);  // of each stage: forward in `layer`, backward in `first`
  double forwards = 0, backwards = 0;
  const double exchange = exchange_seconds(l);
  for (std::size_t s = 0; s < stages; ++s) {
    const double units = static_cast<double>(split[s]) / static_cast<double>(layer.unit);
    const double waits = exchange * static_cast<double>(split[s]);
    const double forward = layer.forward.of(units, s == 0, s + 1 == stages) + waits;
    const double backward = layer.backward.of(units, s == 0, s + 1 == stages) + waits;
    before_forward[s] = forwards, after_backward[s] = backwards;
    forwards += forward, backwards += backward;
    of[s] = {forward, backward};
  }
  double most = 0;
  for (std::size_t place = 0; place < lists.placement.size(); ++place) {
    double work = 0;
    std::int64_t layers = 0;
    for (const int stage : lists.placement[place]) {
      const auto s = static_cast<std::size_t>(stage);
      work += of[s].layer + of[s].first;
      layers += split[s];
    }
    const double sent = sent_overlapped(l, layer, layers);
    work += machine_.device.taken_by_collectives * sent;
    work *= static_cast<double>(l.microbatches);
    most = std::max(most, static_cast<double>(l.microbatches) * sent);
    if (!lists.asynchronous) {
      work += before_forward[static_cast<std::size_t>(lists.first[place])] +
              after_backward[static_cast<std::size_t>(lists.last[place])];
    }
    most = std::max(most, work);
  }
  return most;
}

// For a place that holds both ends of the model: an embedding table that both use counts once.
double LayoutBounds::held(const Parts& parts, double units, bool has_first, bool has_last) const {
  const ModelConfig& model = choices_.base().model;
  const bool shared = model.tie_word_embeddings || model.mtp_num_layers > 0;
  const double both = has_first && has_last && shared ? std::min(parts.first, parts.last) : 0;
  return parts.of(units, has_first, has_last) - both;
}

double LayoutBounds::bytes(const Layout& l, const LayerCosts& layer, const Lists& lists,
                           const std::vector<std::int64_t>& split) {
  const auto stages = split.size();
  const double data = static_cast<double>(l.dp);
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
    const auto sharded = [&](const Parts& parts, int stage) {
      const double all = held(parts, units, has_first, has_last);
      const double measured =
          parts.layer * units * layer.experts + (has_last ? parts.last * layer.last_experts : 0);
      const double experts =
          measured * layer.expert_ranks / static_cast<double>(l.ep * l.expert_tensor());
      if (layer.experts == 0) return l.zero < stage ? all : all / data;
      if (l.zero < stage) return all - measured + experts;
      return (all - measured) / data + experts / static_cast<double>(l.holders());
    };
    const double gradients = sharded(layer.gradients, 2);
    // A factored state isn't in proportion to the elements.
    const double least =
        std::min(1.0, layer.expert_ranks / static_cast<double>(l.ep * l.expert_tensor()));
    const double factored =
        held(layer.state, units, has_first, has_last) *
        (l.zero >= 1 ? std::min(1 / data, least / static_cast<double>(l.holders())) : least);
    const bool is_factored = layer.experts > 0 && choices_.base().optimizer.type == "Adafactor";
    const double states =
        sharded(layer.weights, 3) + gradients + (is_factored ? factored : sharded(layer.state, 1));
    const double chunks_in_flight = lists.in_flight[place] * static_cast<double>(l.chunks);
    double dynamic = chunks_in_flight * smallest * layer.saved_activations;
    // Of a last place without experts nothing is measured.
    if (has_last && l.chunks == 1 && units >= 1) {
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
