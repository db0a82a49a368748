#include "training/plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "parallel/mesh.h"
#include "scheduler/opening.h"
#include "scheduler/simulate.h"
#include "training/from_config.h"
#include "training/memory_plan.h"
#include "training/optimizer.h"
#include "training/rank_share.h"
#include "training/traffic.h"

namespace trident {
namespace {

// fp32 values that the rank at `place` of its shard group keeps for its updates.
std::int64_t optimizer_elements(const DataSharing& sharing, const RankShare& share,
                                const UpdateRule& rule, bool mixed, bool keeps, int place) {
  std::int64_t masters = 0, state = 0;
  for (const BucketLayout& bucket : share.buckets) {
    const std::int64_t count = sharing.updated(bucket);
    masters += count;
    for (const UpdateRange& range :
         update_ranges(bucket, sharing.begin(bucket, place), count, place, sharing.ranks)) {
      for (const StateSpec& kept : rule.states(range.parameter->spec())) state += kept.count(range);
    }
  }
  return state + (mixed ? masters : 0) + (keeps ? masters + state : 0);
}

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

Plan plan_ranks(const Config& config, const Architecture& architecture, const Schedule& schedule,
                Entries entries) {
  const TransformerShape shape = architecture.shape(config);
  const Mesh mesh = mesh_of(config);
  const int t = mesh.size(Group::tensor), p = mesh.size(Group::pipeline);
  const DataSharing sharing(config);
  const bool mixed = shape.dtype != DType::f32;
  const auto element = static_cast<std::int64_t>(size_of(shape.dtype));
  const auto rule = make_update_rule(config);
  // Master weights and state once more where an update may be taken back.
  const bool keeps = overlaps_next_iteration(schedule);

  Plan plan{.world_size = config.world_size(),
            .flops_per_step = flops_per_step(config, architecture)};
  for (const MeshAxis& axis : mesh.axes()) plan.axes.push_back(axis.name);
  plan.bubble_ratio = simulate(schedule, stage_times(schedule, ShareTimes{})).bubble.ratio;
  // Older versions of the weights that are kept beside the live ones.
  const auto stashes = [&](int pipeline) -> std::int64_t {
    if (schedule.updates == Updates::each_microbatch) return p - 1 - pipeline;
    return schedule.asynchronous() ? 1 : 0;
  };
  plan.layer_split = config.pipeline.layer_split;
  const StageTimes times = stage_flops(config);
  plan.bubble_ratio_of_split = simulate(schedule, times).bubble.ratio;
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
  plan.imbalance = most * p / all - 1;
  const std::vector<MemoryPlan> memory = plan_memory(config, architecture, schedule);
  for (int pipeline = 0; pipeline < p; ++pipeline) {
    std::vector<PlanRank> different;
    for (int tensor = 0; tensor < t; ++tensor) {
      const RankShare share = rank_share(config, architecture, schedule, tensor, pipeline);
      const StepTraffic traffic(config, shape, schedule, share, *rule, tensor, pipeline);
      PlanRank base{.pipeline = pipeline};
      for (const Chunk& chunk : share.chunks) {
        base.layers += config.pipeline.layer_split[static_cast<std::size_t>(chunk.stage)];
      }
      for (const auto& parameter : share.parameters) {
        const ParameterSpec& spec = parameter->spec();
        base.parameters += spec.placement.numel();
        if (tensor == 0 && !spec.placement.copy) plan.parameters += spec.placement.global.numel();
      }
      for (const BucketLayout& bucket : share.buckets) {
        base.bytes["parameter"] +=
            (sharing.weights(bucket) + bucket.elements * stashes(pipeline)) * element;
      }
      // What ranks of one share differ in: how many of their elements are padding, what they send,
      // and whether they collect the monitor's reports. Millions of them are a few kinds.
      using Difference = std::tuple<std::int64_t, StepTraffic::Own, bool>;
      std::map<Difference, PlanRank> kinds;
      const int first = mesh.moved(mesh.moved(0, Group::tensor, tensor), Group::pipeline, pipeline);
      for (const int number : mesh.group(first, Group::loss)) {
        const int place = mesh.place(number, Group::shard);
        const Difference difference{optimizer_elements(sharing, share, *rule, mixed, keeps, place),
                                    traffic.own(place, mesh.place(number, Group::replicas), number),
                                    number == 0};
        const auto [known, added] = kinds.try_emplace(difference);
        if (!added && entries == Entries::folded) {
          ++known->second.count;  // ranks rise with their place
          continue;
        }
        PlanRank& rank = known->second = base;
        rank.at = mesh.coordinates(number);
        rank.rank = number;
        rank.bytes_sent = traffic.of(std::get<StepTraffic::Own>(difference));
        const MemoryPlan& planned = memory[static_cast<std::size_t>(number == 0 ? p : pipeline)];
        rank.bytes["optimizer"] = std::get<0>(difference) * 4;
        for (const Category c : {Category::gradient, Category::activation, Category::communication,
                                 Category::workspace}) {
          rank.bytes[std::string(name_of(c))] = planned.peak[static_cast<std::size_t>(c)];
        }
        rank.bytes["library"] = library_bytes(config);
        rank.peak_bytes = planned.peak_total + library_bytes(config) + rank.bytes["optimizer"] -
                          planned.peak[static_cast<std::size_t>(Category::optimizer)];
        if (entries == Entries::each_rank) plan.ranks.push_back(rank);
      }
      if (entries == Entries::each_rank) continue;
      for (const auto& [difference, rank] : kinds) fold(rank, different);
    }
    plan.ranks.insert(plan.ranks.end(), different.begin(), different.end());
  }
  std::sort(plan.ranks.begin(), plan.ranks.end(),
            [](const PlanRank& a, const PlanRank& b) { return a.rank < b.rank; });
  return plan;
}

}  // namespace

double flops_per_step(const Config& config, const Architecture& architecture) {
  const ModelConfig& m = config.model;
  const auto h = static_cast<double>(m.hidden_size), f = static_cast<double>(m.ffn_hidden_size);
  const double kv =
      h * static_cast<double>(m.num_query_groups) / static_cast<double>(m.num_attention_heads);
  const double mlp = architecture.shape(config).swiglu ? 3 : 2;  // products of h × f
  const double weights =
      static_cast<double>(m.num_layers) * (2 * h * h + 2 * h * kv + mlp * h * f) +
      h * static_cast<double>(m.vocab_size);
  const auto s = static_cast<double>(config.data.sequence_length);
  const double attention = 12 * s * h * static_cast<double>(m.num_layers);
  return static_cast<double>(config.batch.global_batch_size) * s * (6 * weights + attention);
}

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
