#include "training/plan/plan_column.h"

#include <algorithm>

#include "parallel/collectives/volume.h"

namespace trident {

PlanColumn::PlanColumn(const Config& config, const Schedule& schedule, const Mesh& mesh,
                       const RankShare& share, const PlannedRank& planned, const UpdateRule& rule,
                       bool rolls_back, int rank)
    : mesh_(mesh),
      planned_(planned),
      rule_(rule),
      stage_(static_cast<int>(config.zero_optimization.stage)),
      mixed_(config.precision.dtype != "fp32"),
      // Master weights and state once more where an update may be rolled back.
      keeps_(rolls_back),
      gradient_(dtype_of(config.precision.grad_accum_dtype)),
      updates_(schedule.updates == Updates::each_microbatch ? schedule.microbatches : 1),
      first_(rank) {
  for (const auto& [operation, times] : planned.traffic.times()) {
    if (!carried_.empty() && carried_.back().group == operation.group) continue;
    Carried& carried = carried_.emplace_back(Carried{operation.group, operation.group, {}});
    carried.axes = group_of_traffic(operation.group);
    if (carried.axes) continue;
    const std::vector<int> holders =
        mesh.embedding_group(rank, {.first = schedule.rank_of_stage(0),
                                    .last = schedule.rank_of_stage(schedule.total_stages() - 1)});
    const auto holder = std::find(holders.begin(), holders.end(), rank);
    carried.world = operation.group != "embedding";
    if (carried.world) {
      carried.traffic = "world";  // the check of a step, too
    } else {
      carried.place = static_cast<int>(holder - holders.begin());
    }
  }
  for (const BucketLayout& bucket : share.buckets) {
    auto found = std::find_if(shared_.begin(), shared_.end(),
                              [&](const Shared& one) { return one.group == bucket.data.shard; });
    if (found == shared_.end()) found = shared_.insert(found, Shared{bucket.data.shard, {}});
    found->buckets.push_back(&bucket);
  }
}

std::int64_t PlanColumn::sent_for(const PartialSum& sum) const {
  Descriptor d{.count = sum.count, .operation = Operation::all_reduce, .dtype = gradient_};
  // As the group's others.
  const std::string name = traffic_name(sum.group).value_or("");
  for (const auto& [operation, times] : planned_.traffic.times()) {
    if (operation.group == name && operation.operation == d.operation) {
      d.algorithm = operation.algorithm;
    }
  }
  return updates_ * trident::bytes_sent(d, mesh_.size(sum.group), mesh_.place(first_, sum.group));
}

const PlanColumn::Shared::Part& PlanColumn::part(Shared& shared, int place) {
  const auto [at, added] = shared.known.try_emplace(place);
  Shared::Part& part = at->second;
  if (!added) return part;
  for (const BucketLayout* bucket : shared.buckets) {
    const auto [begin, count] = bucket->updated(stage_, place);
    std::int64_t changed = 0, state = 0;
    for (const UpdateRange& range : update_ranges(*bucket, stage_, place)) {
      for (const StateSpec& kept : rule_.states(range.parameter->spec())) {
        state += kept.count(range);
      }
      changed += range.count;
    }
    part.optimizer_elements += state + (mixed_ ? count : 0) + (keeps_ ? changed + state : 0);
    for (const PartialSum& sum : partial_sums(*bucket, begin, count)) {
      part.partial[sum.group] += sent_for(sum);
    }
  }
  return part;
}

PlanColumn::Own PlanColumn::own(int rank) {
  Own own;
  std::map<Group, std::int64_t> more;  // than the rank that was planned, at place 0
  for (Shared& shared : shared_) {
    const Shared::Part& planned = part(shared, 0);
    const Shared::Part& here = part(shared, mesh_.place(rank, shared.group));
    own.optimizer_bytes += here.optimizer_elements * 4;
    for (const auto& [group, bytes] : here.partial) more[group] += bytes;
    for (const auto& [group, bytes] : planned.partial) more[group] -= bytes;
  }
  for (Carried& carried : carried_) {
    const int place = carried.world  ? rank
                      : carried.axes ? mesh_.place(rank, *carried.axes)
                                     : carried.place;
    std::int64_t bytes = 0;
    if (carried.world) {
      bytes = planned_.traffic.sent(carried.group, place);
    } else {
      const auto [at, added] = carried.known.try_emplace(place);
      if (added) at->second = planned_.traffic.sent(carried.group, place);
      bytes = at->second;
    }
    if (carried.axes) bytes += more[*carried.axes];
    own.sent.push_back(bytes);
  }
  return own;
}

std::map<std::string, std::int64_t> PlanColumn::bytes_sent(const Own& own) const {
  std::map<std::string, std::int64_t> sent;
  for (std::size_t i = 0; i < carried_.size(); ++i) sent[carried_[i].traffic] += own.sent[i];
  return sent;
}

}  // namespace trident
