#include "training/lab/layout_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "parallel/topology.h"
#include "scheduler/analytic.h"
#include "training/setup/from_config.h"
#include "training/setup/kinds.h"

namespace trident {
namespace {

// Micro-batches in flight on the first rank, in shares (REFERENCE of the kinds: schedules.h).
double in_flight(const Layout& l) {
  const auto p = static_cast<double>(l.pp), m = static_cast<double>(l.microbatches),
             v = static_cast<double>(l.chunks);
  // Those that the config may give: all forwards come before all backwards.
  if (l.schedule == "gpipe" || l.schedule == "naive" || l.schedule == "looped_bfs") return m;
  if (l.schedule == "interleaved_1f1b") return std::min(m, p * (1 + (p - 1) / (p * v)));
  return std::min(m, p);
}

}  // namespace

LayoutEstimator::LayoutEstimator(const LayoutRequest& request, const LayoutChoices& choices)
    : request_(request), choices_(choices) {
  const Config& base = choices.base();
  request.machine.peak_of(dtype_of(base.precision.dtype));  // throws where there is none
  library_ = static_cast<double>(library_bytes(base));
  habits_ = Habits::of(base);
  habits_.tensor_sums_beside_products = choices.overlaps();
  if (!request.assume.empty()) habits_.assume(request.assume);
}

std::string LayoutEstimator::estimate(Layout& l) {
  const Piece& of = piece(l);
  if (!of.problem.empty()) return of.problem;
  try {
    fill_in(l, of);
  } catch (const RequestError& error) {  // a schedule that the config gives
    return "not valid: " + error.problems().front();
  }
  return "";
}

std::int64_t LayoutEstimator::effort(const Layout& l) const {
  const std::int64_t traced =
      std::min(l.microbatches, std::max<std::int64_t>(16, 4 * l.pp * l.chunks));
  const auto layers = static_cast<std::int64_t>(share(l));
  return 5000 + 130 * std::min<std::int64_t>(l.pp, 3) * traced * layers +
         12 * l.microbatches * l.chunks * l.pp;
}

LayoutEstimator::Measured LayoutEstimator::measure(const Layout& l, std::int64_t layers) const {
  Layout one = l;
  one.dp = one.pp = one.chunks = 1;
  one.schedule = "1f1b";
  one.zero = 0;
  std::vector<std::string> set = choices_.set_of_all(one);
  set.push_back(fmt::format("model.num_layers={}", layers));
  set.push_back(fmt::format("batch.global_batch_size={}", 2 * l.micro));
  set.emplace_back("batch.rampup_batch_size=null");
  const Config config = choices_.parse(set);
  const auto architecture = architecture_of(config);
  const Schedule schedule = schedule_of(config);
  const RankPlanner planner(config, *architecture, schedule);
  const TracedStep step = planner.trace(0);
  const RankCosts costs(config, request_.machine, mesh_of(config), ends_of(schedule), habits_, step,
                        schedule.placement[0], 0);
  Measured measured;
  const auto of = costs.of(schedule.ranks[0], schedule.placement[0]);
  measured.forward = of[2]->seconds.total();
  measured.backward = of[1]->seconds.total();
  measured.around = costs.around().seconds.total();
  measured.memory = planner.plan(0).memory;
  return measured;
}

const LayoutEstimator::Piece& LayoutEstimator::piece(const Layout& l) {
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

// Largest number of layers of a rank.
double LayoutEstimator::share(const Layout& l) const {
  return std::ceil(static_cast<double>(choices_.base().model.num_layers) /
                   static_cast<double>(l.pp));
}

void LayoutEstimator::fill_in(Layout& l, const Piece& of) const {
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
  const double sums = collective_seconds(request_.machine, Operation::all_reduce, gradients, shape);
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

}  // namespace trident
