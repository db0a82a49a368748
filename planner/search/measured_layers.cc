#include "planner/search/measured_layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "parallel/context/sequence_pieces.h"
#include "parallel/topology.h"

namespace trident {
namespace {

// Returns the number of devices per node for which a tensor group of `tp` ranks with this stride
// lies on no more nodes than the best group of any layout does on nodes of `devices` devices.
std::int64_t whole_groups(std::int64_t devices, std::int64_t tp, std::int64_t stride) {
  std::int64_t inside = std::min(tp, devices);
  while (tp % inside != 0) ++inside;  // each node holds an equal part of a group
  const std::int64_t span = inside * stride;
  return inside == tp && span <= devices ? devices - devices % span : span;
}

// Returns the least seconds of an action of this kind, without its exchanges of tokens and of
// positions, whose cost depends on the nodes that they cross.
double least_seconds(const std::vector<const ActionCost*>& costs, const std::vector<Action>& list,
                     Kind kind) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].kind != kind) continue;
    const Seconds& seconds = costs[i]->seconds;
    double total = seconds.total();
    for (const Group exchange : {Group::exchange, Group::context}) {
      const auto waits = seconds.groups.find(traffic_name(exchange).value());
      if (waits != seconds.groups.end()) total -= waits->second;
    }
    least = std::min(least, total);
  }
  return least;
}

// Returns the least bytes that an action of this kind exchanges and waits for.
double least_exchanged(const TracedStep& step, Kind kind) {
  std::vector<double> bytes(step.actions.size(), 0.0);
  for (const TracedOperation& one : step.trace.operations()) {
    if (one.action < 0 || one.group < 0 || one.asynchronous) continue;
    if (static_cast<Operation>(one.operation) != Operation::all_to_all_v) continue;
    bytes[static_cast<std::size_t>(one.action)] +=
        static_cast<double>(one.shape.numel()) * static_cast<double>(size_of(one.dtype));
  }
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (step.actions[i].kind == kind) least = std::min(least, bytes[i]);
  }
  return least;
}

}  // namespace

double MeasuredLayers::Place::dynamic() const {
  // Copies for saves may use spare memory.
  const auto fixed = memory.of(Category::parameter) + memory.of(Category::gradient) +
                     memory.of(Category::optimizer) + memory.of(Category::staging);
  return static_cast<double>(memory.peak_total - fixed) - messages;
}

// Measures the first place of a pipeline of two ranks, with `first` layers, and the last place,
// with `last` layers.
std::array<MeasuredLayers::Place, 2> MeasuredLayers::measure(const Layout& l, std::int64_t first,
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
  std::array<Place, 2> places;
  for (std::size_t place = 0; place < places.size(); ++place) {
    const TracedStep step = planner.trace(static_cast<int>(place));
    const RankCosts costs(config, machine, mesh_of(config.parallel), ends_of(schedule),
                          assumptions_, step, schedule.placement[place], pipeline[place]);
    const auto of = costs.of(schedule.ranks[place], schedule.placement[place]);
    Place& measured = places[place];
    measured.forward = least_seconds(of, schedule.ranks[place], Kind::forward);
    measured.backward = least_seconds(of, schedule.ranks[place], Kind::backward);
    measured.sent_forward = least_exchanged(step, Kind::forward);
    measured.sent_backward = least_exchanged(step, Kind::backward);
    const PlannedRank planned = planner.plan_memory(static_cast<int>(place));
    measured.memory = planned.memory;
    // The received message, the next one and a gradient; with a single stage there are no messages.
    measured.messages =
        3 *
        static_cast<double>(l.micro * SequencePieces(config.data.sequence_length, l.cp).most() *
                            config.model.hidden_size) *
        static_cast<double>(size_of(dtype_of(config.precision.dtype))) /
        static_cast<double>(l.sequence_parallel ? l.tp : 1);
    for (const BucketLayout& bucket : planned.buckets) {
      for (const BucketEntry& entry : bucket.entries) {
        const bool of_expert = bucket.data.are_of_expert();
        const auto elements = static_cast<double>(entry.numel);
        (of_expert ? measured.experts : measured.others) += elements;
        if (entry.numel < persistent) continue;
        (of_expert ? measured.gathered_experts : measured.gathered) +=
            elements * static_cast<double>(size_of(dtype_of(config.precision.dtype)));
      }
    }
  }
  return places;
}

LayerCosts MeasuredLayers::measured(const Layout& l) const {
  LayerCosts layer;
  Layout one = l;
  one.cp = one.dp = one.pp = one.chunks = one.ep = 1;
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
    return CostParts{std::min(first, last), std::max(0.0, value(first_one) - first),
                     std::max(0.0, value(last_one) - last)};
  };
  const auto of = [](Category category) {
    return [category](const Place& m) { return static_cast<double>(m.memory.of(category)); };
  };
  layer.forward = parts([](const Place& m) { return m.forward; });
  layer.backward = parts([](const Place& m) { return m.backward; });
  layer.sent_forward = parts([](const Place& m) { return m.sent_forward; });
  layer.sent_backward = parts([](const Place& m) { return m.sent_backward; });
  layer.weights = parts(of(Category::parameter));
  layer.gradients = parts(of(Category::gradient));
  layer.state = parts(of(Category::optimizer));
  layer.gathered = last_two.gathered - last_one.gathered;
  layer.gathered_experts = last_two.gathered_experts - last_one.gathered_experts;
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

const LayerCosts& MeasuredLayers::of(const Layout& l) {
  const auto [at, added] =
      costs_.try_emplace({l.tp, l.cp, l.ep, l.etp, l.micro, l.sequence_parallel, l.recompute});
  if (!added) return at->second;
  try {
    at->second = measured(l);
  } catch (const RequestError& error) {
    at->second.problem = "not valid: " + error.problems().front();
  }
  return at->second;
}

}  // namespace trident
