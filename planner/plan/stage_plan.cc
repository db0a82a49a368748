#include "planner/plan/stage_plan.h"

#include <algorithm>

#include "engine/setup/from_config.h"
#include "parallel/collectives/volume.h"
#include "parallel/topology.h"

namespace trident {

StagePlan::StagePlan(const Config& config, const Schedule& schedule, const Mesh& mesh,
                     const PlannedRank& planned, const UpdateRule& rule)
    : mesh_(mesh),
      planned_(planned),
      rule_(rule),
      ends_(ends_of(schedule)),
      stage_(static_cast<int>(config.zero_optimization.stage)),
      mixed_(config.precision.dtype != "fp32"),
      gradient_(dtype_of(config.precision.grad_accum_dtype)),
      updates_(schedule.updates == Updates::each_microbatch ? schedule.microbatches : 1),
      more_(transport_options(config).more_collectives) {
  for (const auto& [operation, times] : planned.traffic.times()) {
    if (!carried_.empty() && carried_.back().group == operation.group) continue;
    const std::string traffic(traffic_of(operation.group));
    carried_.push_back({operation.group, traffic, group_of_traffic(traffic)});
  }
  for (const BucketLayout& bucket : planned.buckets) {
    auto found = std::find_if(shared_.begin(), shared_.end(),
                              [&](const Shared& one) { return one.group == bucket.data.shard; });
    if (found == shared_.end()) found = shared_.insert(found, Shared{bucket.data.shard, {}});
    found->buckets.push_back(&bucket);
  }
}

std::int64_t StagePlan::sent_for(Group group, Partial& partial, int place) const {
  const auto [at, added] = partial.known.try_emplace(place, 0);
  if (!added) return at->second;
  Descriptor d{.operation = Operation::all_reduce};
  // Use the algorithm of the group's other all-reduces.
  const std::string name = traffic_name(group).value_or("");
  for (const auto& [operation, times] : planned_.traffic.times()) {
    if (operation.group == name && operation.operation == d.operation) {
      d.algorithm = operation.algorithm;
    }
  }
  for (const auto& [count, dtype] : partial.counts) {
    d.count = count;
    d.dtype = dtype;
    at->second += updates_ * trident::bytes_sent(d, mesh_.size(group), place, *more_);
  }
  return at->second;
}

StagePlan::Shared::Part& StagePlan::part(Shared& shared, int place) {
  const auto [at, added] = shared.known.try_emplace(place);
  Shared::Part& part = at->second;
  if (!added) return part;
  constexpr std::int64_t master = 4;  // bytes of a master weight
  for (const BucketLayout* bucket : shared.buckets) {
    const auto [begin, count] = bucket->updated(stage_, place);
    std::int64_t changed = 0;
    for (const UpdateRange& range : update_ranges(*bucket, stage_, place)) {
      std::int64_t state = 0;
      for (const KeptState& kept : kept_states(rule_, range)) state += kept.bytes();
      part.optimizer_bytes += state;
      changed += state + range.count * master;
    }
    if (mixed_ && !bucket->keeps_fp32) part.optimizer_bytes += count * master;
    // Keeps a second copy of master weights and state, for the roll-back.
    if (planned_.rolls_back) part.optimizer_bytes += changed;
    for (const PartialSum& sum : partial_sums(*bucket, begin, count)) {
      part.partial[sum.group].counts.emplace_back(sum.count,
                                                  bucket->keeps_fp32 ? DType::f32 : gradient_);
    }
  }
  return part;
}

std::int64_t StagePlan::sent(Carried& carried, int rank) const {
  const int place = place_of(mesh_, ends_, carried.traffic, rank);
  // In the group of all ranks, each rank has a place of its own.
  if (!carried.axes) return planned_.traffic.sent(carried.group, place, *more_);
  const auto [at, added] = carried.known.try_emplace(place);
  if (added) at->second = planned_.traffic.sent(carried.group, place, *more_);
  return at->second;
}

StagePlan::Own StagePlan::own(int rank) {
  Own own;
  if (planned_.rolls_back) own.optimizer_bytes += planned_.buffer_bytes;
  std::map<Group, std::int64_t> more;  // bytes beyond those of the planned rank, at place 0
  for (Shared& shared : shared_) {
    Shared::Part& planned = part(shared, 0);
    Shared::Part& here = part(shared, mesh_.place(rank, shared.group));
    own.optimizer_bytes += here.optimizer_bytes;
    if (&here == &planned) continue;
    for (auto& [group, partial] : here.partial) {
      more[group] += sent_for(group, partial, mesh_.place(rank, group));
    }
    for (auto& [group, partial] : planned.partial) {
      more[group] -= sent_for(group, partial, mesh_.place(rank, group));
    }
  }
  for (Carried& carried : carried_) {
    std::int64_t bytes = sent(carried, rank);
    if (carried.axes) bytes += more[*carried.axes];
    own.sent.push_back(bytes);
  }
  return own;
}

PlannedMemory StagePlan::memory(const Own& own, bool collects) const {
  PlannedMemory memory = collects ? planned_.collecting : planned_.memory;
  std::int64_t& optimizer = memory.peak[static_cast<std::size_t>(Category::optimizer)];
  memory.peak_total += own.optimizer_bytes - optimizer;
  optimizer = own.optimizer_bytes;
  return memory;
}

std::map<std::string, std::int64_t> StagePlan::bytes_sent(const Own& own) const {
  std::map<std::string, std::int64_t> sent;
  for (std::size_t i = 0; i < carried_.size(); ++i) sent[carried_[i].traffic] += own.sent[i];
  return sent;
}

}  // namespace trident
