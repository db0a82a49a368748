#include "engine/optimizer/optimizer.h"

#include <algorithm>

#include "base/error.h"
#include "engine/optimizer/param_groups.h"
#include "kernels/elementwise.h"

namespace trident {

std::vector<UpdateRange> update_ranges(const BucketLayout& layout, int zero_stage, int place) {
  const auto [begin, count] = layout.updated(zero_stage, place);
  const auto [own_begin, own_count] = layout.own(place);
  // The intersection of [from, from + n) of the bucket with an entry, relative to the entry.
  const auto meet = [](const BucketEntry& entry, std::int64_t from, std::int64_t n) {
    const std::int64_t first = std::clamp<std::int64_t>(from - entry.offset, 0, entry.numel);
    const std::int64_t end = std::clamp<std::int64_t>(from + n - entry.offset, 0, entry.numel);
    return std::pair(first, end - first);
  };
  std::vector<UpdateRange> ranges;
  for (const BucketEntry& entry : layout.entries) {
    const auto [at, n] = meet(entry, begin, count);
    const auto [own, own_n] = meet(entry, own_begin, own_count);
    ranges.push_back({entry.parameter.get(), at, n, own, own_n});
  }
  return ranges;
}

const ProcessGroup& UpdateStep::sharding_group() const {
  static const ProcessGroup none;
  if (sharded_by.size() > 1) {
    throw Error(
        "Optimizer: its sums over complete parameters need one sharding group, but these are "
        "sharded by '" +
        sharded_by[0].name() + "' and by '" + sharded_by[1].name() +
        "'; use an optimizer without sums over parameters");
  }
  return sharded_by.empty() ? none : sharded_by.front();
}

Placement StateSpec::placement(const Placement& parameter) const {
  if (extent == Extent::elements) return parameter;
  return parameter.along(extent == Extent::rows ? 0 : 1);
}

std::int64_t StateSpec::count(const UpdateRange& range) const {
  if (extent == Extent::elements) return range.count;
  return placement(range.parameter->spec().placement).numel();
}

std::vector<KeptState> kept_states(const UpdateRule& rule, const UpdateRange& range) {
  std::vector<KeptState> kept;
  std::vector<StateSpec> specs = rule.states(range.parameter->spec());
  kept.reserve(specs.size());
  for (StateSpec& spec : specs) {
    const std::int64_t count = spec.count(range);
    kept.push_back({std::move(spec), count});
  }
  return kept;
}

Optimizer::Optimizer(Context& context, const ParameterBuckets& buckets,
                     std::unique_ptr<UpdateRule> rule, const Topology& topology,
                     const std::vector<ParamGroup>& groups)
    : rule_(std::move(rule)) {
  for (const Bucket& bucket : buckets.buckets()) {
    add_bucket(topology, bucket, parts_.size());
    auto& parts = parts_.emplace_back();
    for (const UpdateRange& range :
         update_ranges(bucket.layout, buckets.zero_stage(), bucket.sharing.rank())) {
      UpdatePart& part = parts.emplace_back(UpdatePart{.range = range});
      if (const ParamGroup* group = group_of(groups, range.parameter->name())) {
        part.lr_mult = group->lr_mult;
        part.weight_decay = group->weight_decay;
      }
      for (const KeptState& kept : kept_states(*rule_, range)) {
        part.state.push_back(context.empty({kept.count}, kept.spec.dtype, Category::optimizer));
        fill(context, part.state.back(), kept.spec.initial);
      }
    }
  }
}

namespace {

// The groups of several ranks that shard a parameter. Those of experts together have the ranks that
// exchange tokens.
std::vector<Group> sharding_groups_of(const Topology& topology, const Placement& placement) {
  std::vector<Group> groups;
  for (const Group one : placement.sharded_by()) {
    if (topology.size(one) > 1) groups.push_back(one);
  }
  const auto has = [&](Group one) { return std::ranges::find(groups, one) != groups.end(); };
  if (has(Group::expert) && has(Group::expert_tensor)) {
    std::erase(groups, Group::expert);
    std::ranges::replace(groups, Group::expert_tensor, Group::exchange);
  }
  return groups;
}

}  // namespace

void Optimizer::add_bucket(const Topology& topology, const Bucket& bucket, std::size_t index) {
  auto found = std::find_if(together_.begin(), together_.end(), [&](const SharedBuckets& one) {
    return one.data == bucket.layout.data;
  });
  if (found == together_.end()) {
    found = together_.insert(found, {bucket.layout.data, bucket.sharing, {}, {}});
  }
  found->buckets.push_back(index);
  for (const BucketEntry& entry : bucket.layout.entries) {
    for (const Group sharding : sharding_groups_of(topology, entry.parameter->spec().placement)) {
      const ProcessGroup& group = topology.of(sharding);
      const bool known = std::any_of(
          found->sharded_by.begin(), found->sharded_by.end(),
          [&](const ProcessGroup& one) { return one.world_ranks() == group.world_ranks(); });
      if (!known) found->sharded_by.push_back(group);
    }
  }
}

void Optimizer::append_state(const ParameterBuckets& buckets, const Topology& topology,
                             State& into) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Bucket& bucket = buckets.buckets()[i];
    for (const UpdatePart& part : parts_[i]) {
      const auto specs = rule_->states(part.range.parameter->spec());
      for (std::size_t k = 0; k < specs.size(); ++k) {
        const bool elements = specs[k].extent == StateSpec::Extent::elements;
        const Placement placement = specs[k].placement(part.range.parameter->spec().placement);
        into.tensors.push_back(
            {.kind = StateKind::optimizer,
             .name = specs[k].name,
             .parameter = part.range.parameter,
             .placement = placement,
             .begin = elements ? part.range.begin : 0,
             .tensor = part.state[k],
             .holder = bucket.holder(topology.holder(placement),
                                     elements && bucket.count < bucket.layout.elements)});
      }
    }
  }
  into.numbers.push_back({"optimizer.step", &steps_});
}

void Optimizer::take_average(Context& context, ParameterBuckets& buckets) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Bucket& bucket = buckets.buckets()[i];
    for (std::size_t p = 0; p < parts_[i].size(); ++p) {
      const UpdatePart& part = parts_[i][p];
      if (part.range.count == 0) continue;
      const auto specs = rule_->states(part.range.parameter->spec());
      const auto found = std::ranges::find(specs, average_name, &StateSpec::name);
      if (found == specs.end()) throw Error("Optimizer: there is no average of the weights");
      const std::int64_t at = bucket.layout.entries[p].offset + part.range.begin - bucket.begin;
      copy(context, part.state[static_cast<std::size_t>(found - specs.begin())],
           bucket.master.flat(at, part.range.count));
    }
  }
}

void Optimizer::step(Context& context, ParameterBuckets& buckets, float learning_rate,
                     float gradient_scale) {
  ++steps_;
  for (const SharedBuckets& together : together_) {
    std::vector<UpdatePart> parts;
    for (const std::size_t i : together.buckets) {
      const Bucket& bucket = buckets.buckets()[i];
      for (std::size_t p = 0; p < parts_[i].size(); ++p) {
        UpdatePart& part = parts.emplace_back(parts_[i][p]);
        const std::int64_t at = part.range.count == 0 ? 0
                                                      : bucket.layout.entries[p].offset +
                                                            part.range.begin - bucket.begin;
        part.weight = bucket.master.flat(at, part.range.count);
        part.gradient = bucket.gradient.flat(at, part.range.count);
        if (bucket.rounds_master()) part.model_weight = bucket.shard.flat(at, part.range.count);
      }
    }
    rule_->update(context, parts,
                  {.learning_rate = learning_rate,
                   .gradient_scale = gradient_scale,
                   .step = steps_,
                   .sharing = together.sharing,
                   .sharded_by = together.sharded_by});
  }
}

}  // namespace trident
