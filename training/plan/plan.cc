#include "training/plan/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "parallel/topology.h"
#include "scheduler/simulate.h"
#include "scheduler/warm_up.h"
#include "training/plan/plan_column.h"
#include "training/plan/planned_pipeline.h"
#include "training/setup/from_config.h"
#include "training/setup/model_costs.h"

namespace trident {
namespace {

bool alike(const PlanRank& a, const PlanRank& b) {
  return a.pipeline == b.pipeline && a.layers == b.layers && a.parameters == b.parameters &&
         a.bytes == b.bytes && a.peak_bytes == b.peak_bytes && a.bytes_sent == b.bytes_sent;
}

// Tensor ranks of a pipeline rank that take the same. `ranks` are of one pipeline rank.
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

// How much more than the mean the busiest pipeline rank has to compute.
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

// What all ranks have that are planned as this one.
PlanRank rank_of(const Config& config, const RankShare& share, const PlannedMemory& memory,
                 int pipeline) {
  PlanRank rank{.pipeline = pipeline};
  for (const Chunk& chunk : share.chunks) {
    rank.layers += config.pipeline.layer_split[static_cast<std::size_t>(chunk.stage)];
  }
  for (const auto& parameter : share.parameters) {
    rank.parameters += parameter->spec().placement.numel();
  }
  for (const Category c : {Category::parameter, Category::gradient, Category::activation,
                           Category::communication, Category::workspace}) {
    rank.bytes[std::string(name_of(c))] = memory.of(c);
  }
  rank.bytes["library"] = library_bytes(config);
  rank.peak_bytes = memory.peak_total + library_bytes(config) - memory.of(Category::optimizer);
  return rank;
}

// The ranks at a place of the tensor and pipeline groups: an entry for each, or for each kind.
std::vector<PlanRank> ranks_of_column(const Config& config, const Mesh& mesh,
                                      const RankShare& share, const PlannedRank& planned,
                                      PlanColumn& column, int first, Entries entries) {
  // What ranks of one share differ in: how many of their elements are padding, what they send, and
  // whether they collect the monitor's reports. Millions of them are a few kinds.
  std::map<std::pair<PlanColumn::Own, bool>, PlanRank> kinds;
  std::vector<PlanRank> each;
  const int pipeline = mesh.place(first, Group::pipeline);
  for (const int number : mesh.group(first, Group::loss)) {
    const std::pair difference{column.own(number), number == 0};
    const auto [known, added] = kinds.try_emplace(difference);
    if (!added && entries == Entries::folded) {
      ++known->second.count;  // ranks rise with their place
      continue;
    }
    PlanRank& rank = known->second =
        rank_of(config, share, number == 0 ? planned.collecting : planned.memory, pipeline);
    rank.at = mesh.coordinates(number);
    rank.rank = number;
    rank.bytes["optimizer"] = difference.first.optimizer_bytes;
    rank.peak_bytes += difference.first.optimizer_bytes;
    // Groups that carry something in other layouts.
    for (const char* name : {"world", "tensor", "pipeline", "data", "embedding"}) {
      rank.bytes_sent[name] = 0;
    }
    if (mesh.size(Group::replicas) > 1) rank.bytes_sent["replicas"] = 0;
    for (const auto& [name, bytes] : column.bytes_sent(difference.first)) {
      rank.bytes_sent[name] = bytes;
    }
    if (entries == Entries::each_rank) each.push_back(rank);
  }
  if (entries == Entries::each_rank) return each;
  for (auto& [difference, rank] : kinds) each.push_back(std::move(rank));
  return each;
}

Plan plan_ranks(const Config& config, const Architecture& architecture, const Schedule& schedule,
                Entries entries) {
  const Mesh mesh = mesh_of(config);
  const auto rule = make_update_rule(config);
  const bool rolls_back = overlaps_next_iteration(schedule);
  Plan plan{.world_size = config.world_size(),
            .flops_per_step = flops_per_step(config, architecture)};
  for (const MeshAxis& axis : mesh.axes()) plan.axes.push_back(axis.name);
  plan.bubble_ratio = simulate(schedule, stage_times(schedule, ShareTimes{})).bubble.ratio;
  plan.layer_split = config.pipeline.layer_split;
  const StageTimes times = stage_costs(model_costs(config, architecture), plan.layer_split);
  plan.bubble_ratio_of_split = simulate(schedule, times).bubble.ratio;
  plan.imbalance = imbalance_of(schedule, times);
  const std::vector<PlannedRank> planned = plan_pipeline(config, architecture, schedule);
  for (int pipeline = 0; pipeline < mesh.size(Group::pipeline); ++pipeline) {
    std::vector<PlanRank> different;
    for (int tensor = 0; tensor < mesh.size(Group::tensor); ++tensor) {
      const RankShare share = rank_share(config, architecture, schedule, tensor, pipeline);
      for (const auto& parameter : share.parameters) {
        const Placement& placement = parameter->spec().placement;
        if (tensor == 0 && !placement.copy) plan.parameters += placement.global.numel();
      }
      const PlannedRank& of_place = planned[static_cast<std::size_t>(pipeline)];
      const int first = mesh.moved(mesh.moved(0, Group::tensor, tensor), Group::pipeline, pipeline);
      PlanColumn column(config, schedule, mesh, share, of_place, *rule, rolls_back, first);
      auto ranks = ranks_of_column(config, mesh, share, of_place, column, first, entries);
      for (PlanRank& rank : ranks) {
        if (entries == Entries::each_rank) {
          plan.ranks.push_back(std::move(rank));
        } else {
          fold(rank, different);
        }
      }
    }
    plan.ranks.insert(plan.ranks.end(), different.begin(), different.end());
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
