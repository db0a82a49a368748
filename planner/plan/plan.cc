#include "planner/plan/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "engine/setup/from_config.h"
#include "engine/setup/model_costs.h"
#include "parallel/topology.h"
#include "planner/plan/planned_pipeline.h"
#include "planner/plan/stage_plan.h"
#include "scheduler/simulate.h"

namespace trident {
namespace {

bool alike(const PlanRank& a, const PlanRank& b) {
  return a.pipeline == b.pipeline && a.layers == b.layers && a.parameters == b.parameters &&
         a.bytes == b.bytes && a.peak_bytes == b.peak_bytes && a.bytes_sent == b.bytes_sent;
}

// Folds ranks that have the same values in the plan into one entry.
void fold(const PlanRank& rank, std::vector<PlanRank>& ranks) {
  const auto same = std::find_if(ranks.begin(), ranks.end(),
                                 [&](const PlanRank& other) { return alike(other, rank); });
  if (same == ranks.end()) {
    ranks.push_back(rank);
    return;
  }
  const std::int64_t count = same->count + rank.count;
  if (rank.rank < same->rank) *same = rank;
  same->count = count;
}

enum class Entries { folded, each_rank };

// Returns the busiest pipeline rank's compute relative to the mean, less 1.
double imbalance_of(const Schedule& schedule, const StageTimes& times) {
  double all = 0, most = 0;
  for (const auto& held : schedule.placement) {
    double rank = 0;
    for (const int stage : held) {
      const auto i = static_cast<std::size_t>(stage);
      rank += times.forward[i] + times.backward_input[i] + times.backward_weight[i];
    }
    all += rank;
    most = std::max(most, rank);
  }
  return most * static_cast<double>(schedule.placement.size()) / all - 1;
}

// Returns the values that all ranks with this plan share.
PlanRank rank_of(const Config& config, const std::vector<int>& stages, const PlannedRank& planned,
                 const PlannedMemory& memory) {
  PlanRank rank;
  for (const int stage : stages) {
    rank.layers += config.pipeline.layer_split[static_cast<std::size_t>(stage)];
  }
  for (const BucketLayout& bucket : planned.buckets) {
    for (const BucketEntry& entry : bucket.entries) rank.parameters += entry.numel;
  }
  for (const Category c :
       {Category::parameter, Category::gradient, Category::optimizer, Category::activation,
        Category::communication, Category::workspace, Category::staging}) {
    rank.bytes[std::string(name_of(c))] = memory.of(c);
  }
  rank.bytes["library"] = library_bytes(config);
  rank.peak_bytes = memory.peak_total + library_bytes(config);
  return rank;
}

// Adds the parameters of the model that this rank and the other ranks of its stage hold.
void count_parameters(const PlannedRank& planned, Plan& plan) {
  for (const BucketLayout& bucket : planned.buckets) {
    for (const BucketEntry& entry : bucket.entries) {
      const ParameterSpec& spec = entry.parameter->spec();
      if (spec.placement.copy) continue;
      plan.parameters += spec.placement.global.numel();
      plan.parameters_by_role[spec.role] += spec.placement.global.numel();
    }
  }
}

// Returns the ranks of a stage: one entry per rank, or per distinct plan.
std::vector<PlanRank> ranks_of_stage(const Config& config, const Schedule& schedule,
                                     const Mesh& mesh, const UpdateRule& rule,
                                     const PlannedRank& planned, int pipeline, Entries entries) {
  StagePlan stage(config, schedule, mesh, planned, rule);
  // Ranks differ in the padding among their elements, in the bytes that they send, and in whether
  // they collect the monitor's reports. A stage of millions of ranks has few distinct entries.
  std::map<std::pair<StagePlan::Own, bool>, PlanRank> distinct;
  std::vector<PlanRank> list;
  const std::vector<int>& stages = schedule.placement[static_cast<std::size_t>(pipeline)];
  for (const int number : mesh.same_stage(pipeline)) {
    const std::pair difference{stage.own(number), number == 0};
    const auto [known, added] = distinct.try_emplace(difference);
    if (!added && entries == Entries::folded) {
      ++known->second.count;  // the first rank has the lowest number
      continue;
    }
    PlanRank& rank = known->second =
        rank_of(config, stages, planned, stage.memory(difference.first, number == 0));
    rank.pipeline = pipeline;
    rank.at = mesh.coordinates(number);
    rank.rank = number;
    for (const std::string& name : traffic_names(mesh)) rank.bytes_sent[name] = 0;
    for (const auto& [name, bytes] : stage.bytes_sent(difference.first)) {
      rank.bytes_sent[name] = bytes;
    }
    if (entries == Entries::each_rank) list.push_back(rank);
  }
  if (entries == Entries::each_rank) return list;
  for (auto& [difference, rank] : distinct) fold(rank, list);
  return list;
}

Plan plan_ranks(const Config& config, const Architecture& architecture, const Schedule& schedule,
                Entries entries) {
  const Mesh mesh = mesh_of(config.parallel);
  const auto rule = make_update_rule(config);
  const ModelCosts costs = model_costs(config, architecture);
  Plan plan{.world_size = config.world_size(),
            .flops_per_step = flops_per_step(config, architecture, costs)};
  for (const MeshAxis& axis : mesh.axes()) plan.axes.push_back(axis.name);
  plan.bubble_ratio = simulate(schedule, stage_times(schedule, ShareTimes{})).bubble.ratio;
  plan.layer_split = config.pipeline.layer_split;
  const StageTimes times = stage_costs(costs, plan.layer_split);
  plan.bubble_ratio_of_split = simulate(schedule, times).bubble.ratio;
  plan.imbalance = imbalance_of(schedule, times);
  const std::vector<PlannedRank> planned = plan_pipeline(config, architecture, schedule);
  for (int pipeline = 0; pipeline < schedule.stages; ++pipeline) {
    const PlannedRank& of_place = planned[static_cast<std::size_t>(pipeline)];
    count_parameters(of_place, plan);
    auto ranks = ranks_of_stage(config, schedule, mesh, *rule, of_place, pipeline, entries);
    plan.ranks.insert(plan.ranks.end(), ranks.begin(), ranks.end());
  }
  std::sort(plan.ranks.begin(), plan.ranks.end(),
            [](const PlanRank& a, const PlanRank& b) { return a.rank < b.rank; });
  return plan;
}

}  // namespace

Plan make_plan(const Config& config, const Architecture& architecture) {
  return make_plan(config, architecture, schedule_of(config));
}

Plan make_plan(const Config& config, const Architecture& architecture, const Schedule& schedule) {
  return plan_ranks(config, architecture, schedule, Entries::folded);
}

Plan plan_each_rank(const Config& config, const Architecture& architecture) {
  return plan_ranks(config, architecture, schedule_of(config), Entries::each_rank);
}

std::map<std::string, std::int64_t> largest_rank(const Plan& plan) {
  std::map<std::string, std::int64_t> largest;
  for (const PlanRank& rank : plan.ranks) {
    for (const auto& [name, bytes] : rank.bytes) largest[name] = std::max(largest[name], bytes);
    largest["total"] = std::max(largest["total"], rank.peak_bytes - rank.bytes.at("library"));
  }
  largest.erase("library");  // in no ledger
  return largest;
}

}  // namespace trident
