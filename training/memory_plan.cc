#include "training/memory_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "core/device.h"
#include "core/error.h"
#include "kernels/cuda_device.h"
#include "parallel/transport/planning.h"
#include "scheduler/simulate.h"
#include "training/from_config.h"
#include "training/kinds.h"
#include "training/monitor.h"
#include "training/rank_model.h"
#include "training/trainer.h"

namespace trident {
namespace {

struct Shortened {
  Config config;
  Schedule schedule;
  std::int64_t microbatches;  // of the run that was shortened
};

// The same with fewer micro-batches, where every rank still comes to hold as many at once.
Shortened shortened(const Config& config, const Schedule& schedule) {
  const std::int64_t unit = config.stages() * 2;
  const std::int64_t m = config.num_microbatches();
  if (m <= std::max<std::int64_t>(2 * unit, 16) || !config.pipeline.schedule_file.empty() ||
      schedule_rules(config).searched) {
    return {config, schedule, m};
  }
  const auto wanted = peak_in_flight(schedule);
  for (const std::int64_t few : {unit, 2 * unit}) {
    Shortened result{config, {}, m};
    BatchConfig& batch = result.config.batch;
    batch.gradient_accumulation_steps = few;
    batch.global_batch_size = batch.micro_batch_size * few * config.parallel.ranks(Group::batch);
    try {
      result.schedule = schedule_of(result.config);
    } catch (const RequestError&) {
      continue;  // the kind doesn't take so few
    }
    if (peak_in_flight(result.schedule) == wanted) return result;
  }
  return {config, schedule, m};
}

// Of a rank, and of the same one if it collects the monitor's reports.
std::pair<MemoryPlan, MemoryPlan> memory_of(const Shortened& run,
                                            const std::shared_ptr<const RunLists>& lists,
                                            const Architecture& architecture, int pipeline,
                                            Device& device, std::vector<HostMicroBatch>& batches) {
  const Config& config = run.config;
  const Mesh mesh = mesh_of(config);
  Context context(device, static_cast<int>(config.runtime.threads_per_rank),
                  kernel_options(config));
  const auto transport = make_planning_transport(
      mesh.moved(0, Group::pipeline, pipeline), static_cast<int>(config.world_size()),
      transport_of(config).needs_staging, transport_options(config));
  RankModel model(context, config, architecture, lists,
                  topology_of(config, run.schedule, *transport));
  context.ledger().reset_peaks();
  // All of an iteration's tokens are there at once.
  // The second iteration meets what the first has left, a late check what comes after it.
  Tensor report;
  std::int64_t collected = 0;  // reports of all ranks, on the one that collects them
  Ledger::Figures between;
  for (int i = 0; i < (model.late_check() ? 3 : 2); ++i) {
    batches.resize(static_cast<std::size_t>(run.microbatches + model.look_ahead()));
    model.advance(batches, {.learning_rate = 0, .close = !model.late_check()});
    // As many times more actions as there are more micro-batches. The report is read at once, or
    // after the next iteration.
    std::int64_t actions = 0;
    for (const auto& list : model.executed().lists) actions = std::max(actions, std::ssize(list));
    const std::int64_t bytes = report_bytes(actions * run.microbatches / config.num_microbatches(),
                                            model.topology().traffic_groups().size());
    report = {};
    report = context.empty({bytes}, DType::u8, Category::communication);
    collected = bytes * config.world_size();
    between = context.ledger().figures();
    if (!model.late_check()) report = {};
  }
  model.settle();
  const Ledger::Figures figures = context.ledger().figures();
  const MemoryPlan plain{figures.peak, figures.peak_total};
  MemoryPlan collecting = plain;
  std::int64_t& communication = collecting.peak[static_cast<std::size_t>(Category::communication)];
  if (model.late_check()) {
    communication += collected;
    collecting.peak_total += collected;
  } else {
    const auto now = between.current[static_cast<std::size_t>(Category::communication)];
    communication = std::max(communication, now + collected);
    collecting.peak_total = std::max(collecting.peak_total, between.total + collected);
  }
  return {plain, collecting};
}

struct Planning {
  Planning(const Config& config, const Schedule& schedule) : run(shortened(config, schedule)) {
    // Room for the iterations that are run.
    run.config.training.train_iters = std::max<std::int64_t>(4, config.training.train_iters);
    const std::string& on = config.runtime.device;
    const bool cuda = on == "cuda" || (on == "auto" && find_gpus().count > 0);
    device = make_planning_device(cuda ? DeviceKind::cuda : DeviceKind::cpu);
    lists = std::make_shared<RunLists>(run.schedule, run.config.training.train_iters);
  }
  std::pair<MemoryPlan, MemoryPlan> memory_of(const Architecture& architecture,
                                              int pipeline) const {
    return trident::memory_of(run, lists, architecture, pipeline, *device, batches);
  }

  Shortened run;
  std::unique_ptr<Device> device;
  std::shared_ptr<const RunLists> lists;
  // All zeros, for every rank the same.
  mutable std::vector<HostMicroBatch> batches;
};

// Pipeline ranks that differ in nothing but how many micro-batches they hold: as many layers in
// each chunk, neither end of the model, and a number in flight that grows evenly from one to the
// next, in lists of one rule.
std::vector<std::vector<int>> even_stretches(const Config& config, const Schedule& schedule) {
  std::vector<std::vector<int>> stretches;
  const bool one_rule = config.pipeline.schedule_file.empty() && !schedule_rules(config).searched;
  const std::vector<double> in_flight = peak_in_flight(schedule);
  std::map<std::vector<std::int64_t>, std::size_t> latest;  // of those alike
  for (int rank = 0; rank < schedule.stages; ++rank) {
    std::vector<std::int64_t> share;
    for (const int stage : schedule.placement[static_cast<std::size_t>(rank)]) {
      const bool ends = stage == 0 || stage + 1 == schedule.total_stages();
      share.push_back(config.pipeline.layer_split[static_cast<std::size_t>(stage)]);
      if (ends || !one_rule) share.push_back(-1 - rank);  // like no other
    }
    const auto [at, added] = latest.try_emplace(share, stretches.size());
    const auto fits = [&](const std::vector<int>& line) {
      if (line.size() < 2) return true;
      const auto value = [&](int r) { return in_flight[static_cast<std::size_t>(r)]; };
      const int first = line[0], second = line[1];
      return (value(rank) - value(first)) * (second - first) ==
             (value(second) - value(first)) * (rank - first);
    };
    if (added || !fits(stretches[at->second])) {
      at->second = stretches.size();
      stretches.emplace_back();
    }
    stretches[at->second].push_back(rank);
  }
  return stretches;
}

// Calls `plan_rank` for the ends of a stretch and for three ranks between them; where these lie on
// a line to the byte so do all others, else both sides of where it seems to bend are looked at.
class Stretch {
 public:
  Stretch(const std::vector<int>& ranks, const std::function<MemoryPlan(int)>& plan_rank)
      : ranks_(ranks), plan_rank_(plan_rank), plans_(ranks.size()) {}

  std::vector<MemoryPlan> plans() {
    fill(0, ranks_.size() - 1);
    std::vector<MemoryPlan> result;
    for (const auto& plan : plans_) result.push_back(*plan);
    return result;
  }

 private:
  const MemoryPlan& at(std::size_t i) {
    if (!plans_[i]) plans_[i] = plan_rank_(ranks_[i]);
    return *plans_[i];
  }

  // What rank i has on the line through low and high; none between two bytes.
  std::optional<MemoryPlan> on_line(std::size_t low, std::size_t high, std::size_t i) {
    const std::int64_t whole = ranks_[high] - ranks_[low], part = ranks_[i] - ranks_[low];
    bool even = true;
    const auto between = [&](std::int64_t from, std::int64_t to) {
      even = even && (to - from) % whole == 0;
      return from + (to - from) / whole * part;
    };
    const MemoryPlan first = at(low), last = at(high);
    MemoryPlan plan;
    for (std::size_t c = 0; c < plan.peak.size(); ++c) {
      plan.peak[c] = between(first.peak[c], last.peak[c]);
    }
    plan.peak_total = between(first.peak_total, last.peak_total);
    return even ? std::optional(plan) : std::nullopt;
  }

  // Where the lines through the first two and through the last two meet; the middle if they don't.
  std::size_t bend_between(std::size_t low, std::size_t high) {
    const auto rank = [&](std::size_t i) { return static_cast<double>(ranks_[i]); };
    const auto total = [&](std::size_t i) { return static_cast<double>(at(i).peak_total); };
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
      line = line && expected && expected->peak == at(i).peak &&
             expected->peak_total == at(i).peak_total;
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
  const std::function<MemoryPlan(int)>& plan_rank_;
  std::vector<std::optional<MemoryPlan>> plans_;
};

}  // namespace

std::vector<MemoryPlan> plan_memory(const Config& config, const Architecture& architecture,
                                    const Schedule& schedule) {
  const Planning planning(config, schedule);
  std::vector<MemoryPlan> plans(static_cast<std::size_t>(schedule.stages) + 1);
  const auto plan_rank = [&](int pipeline) {
    const auto [plain, collecting] = planning.memory_of(architecture, pipeline);
    if (pipeline == 0) plans.back() = collecting;
    return plain;
  };
  for (const std::vector<int>& ranks : even_stretches(planning.run.config, planning.run.schedule)) {
    const std::vector<MemoryPlan> found = Stretch(ranks, plan_rank).plans();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      plans[static_cast<std::size_t>(ranks[i])] = found[i];
    }
  }
  return plans;
}

MemoryPlan plan_memory_of(const Config& config, const Architecture& architecture,
                          const Schedule& schedule, int pipeline) {
  return Planning(config, schedule).memory_of(architecture, pipeline).first;
}

std::int64_t library_bytes(const Config& config) {
  // Measured (docs/memory.md): a small run's peak resident memory less its ledgers.
  constexpr std::int64_t process = 33'000'000;  // code, libraries and their tables
  constexpr std::int64_t rank = 4'500'000;      // what its allocator keeps ready, stacks
  if (!transport_rules(config).threads) return process + rank;  // a rank is a process
  return process / config.world_size() + rank;
}

}  // namespace trident
