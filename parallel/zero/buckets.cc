#include "parallel/zero/buckets.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace trident {

void bind_weights(const BucketLayout& layout, const Tensor& weights) {
  for (const BucketEntry& entry : layout.entries) {
    entry.parameter->bind_weight(weights ? weights.flat(entry.offset, entry.numel)
                                               .view(entry.parameter->spec().placement.local())
                                         : Tensor());
  }
}

ParameterBuckets::ParameterBuckets(Context& context, const std::vector<ParameterGroup>& groups,
                                   const BucketOptions& options, const Topology& topology,
                                   const ParameterGroup& buffers)
    : options_(options) {
  for (BucketLayout& layout : layout_buckets(groups, options.limits)) {
    add(context, std::move(layout), options.zero_stage, topology);
  }
  updated_ = buckets_.size();
  if (buffers.empty()) return;
  for (BucketLayout& layout : layout_buckets({buffers}, options.limits)) {
    add(context, std::move(layout), 0, topology);
  }
}

void ParameterBuckets::add(Context& context, BucketLayout layout, int zero_stage,
                           const Topology& topology) {
  Bucket bucket;
  bucket.sharing = topology.of(layout.data.shard);
  bucket.replicas = topology.of(layout.data.replicas);
  const auto [begin, count] = layout.updated(zero_stage, bucket.sharing.rank());
  bucket.begin = begin;
  bucket.count = count;
  const DType dtype = layout.keeps_fp32 ? DType::f32 : options_.dtype;
  if (zero_stage == 3 && !layout.persistent && bucket.shared()) {
    bucket.shard = context.empty({bucket.count}, dtype, Category::parameter);
    fill(context, bucket.shard, 0);
  } else {
    bucket.weights = context.empty({layout.elements}, dtype, Category::parameter);
    fill(context, bucket.weights, 0);
    bucket.shard = bucket.weights.flat(bucket.begin, bucket.count);
    bind_weights(layout, bucket.weights);
  }
  if (dtype == DType::f32) bucket.master = bucket.shard;
  for (const BucketEntry& entry : layout.entries) {
    bucket_of_[entry.parameter.get()] = buckets_.size();
  }
  bucket.layout = std::move(layout);
  buckets_.push_back(std::move(bucket));
}

void ParameterBuckets::keep_masters(Context& context) {
  for (Bucket& bucket : buckets_) {
    if (bucket.master) continue;
    bucket.master = context.empty({bucket.count}, DType::f32, Category::optimizer);
    copy(context, bucket.shard, bucket.master);
  }
}

void ParameterBuckets::set(Context& context, const Parameter& parameter, const Tensor& values,
                           std::int64_t first) {
  const std::int64_t end = first + values.numel();
  const Bucket& bucket = buckets_[bucket_of(parameter)];
  if (bucket.weights) {
    copy(context, values.flat(0, values.numel()), parameter.weight().flat(first, values.numel()));
  }
  for (const ParameterSegment& segment : segments(bucket.layout, bucket.begin, bucket.count)) {
    if (segment.parameter != &parameter) continue;
    const std::int64_t from = std::max(first, segment.begin - segment.offset);
    const std::int64_t count = std::min(end, segment.begin - segment.offset + segment.count) - from;
    if (count <= 0) continue;
    const Tensor part = values.flat(from - first, count);
    const std::int64_t local = segment.offset + from - bucket.begin;
    if (!bucket.weights) copy(context, part, bucket.shard.flat(local, count));
    if (bucket.master && bucket.rounds_master()) {
      copy(context, part, bucket.master.flat(local, count));
    }
  }
}

void ParameterBuckets::round_masters(Context& context) {
  for (const Bucket& bucket : buckets_) {
    if (bucket.rounds_master()) copy(context, bucket.master, bucket.shard);
  }
}

void ParameterBuckets::append_state(StateKind kind, const Topology& topology, State& into) const {
  const char* name = kind == StateKind::weight     ? "weight"
                     : kind == StateKind::gradient ? "gradient"
                                                   : "master";
  for (const Bucket& bucket : buckets_) {
    const bool whole = kind == StateKind::weight && bucket.weights;
    const Tensor& from = whole                         ? bucket.weights
                         : kind == StateKind::weight   ? bucket.shard
                         : kind == StateKind::gradient ? bucket.gradient
                                                       : bucket.master;
    if (!from) continue;
    const std::int64_t first = whole ? 0 : bucket.begin;
    const bool is_shard = from.numel() < bucket.layout.elements;
    for (const ParameterSegment& segment : segments(bucket.layout, first, from.numel())) {
      const Placement& placement = segment.parameter->spec().placement;
      into.tensors.push_back({.kind = kind,
                              .name = name,
                              .parameter = segment.parameter,
                              .placement = placement,
                              .begin = segment.begin - segment.offset,
                              .tensor = from.flat(segment.begin - first, segment.count),
                              .holder = bucket.holder(topology.holder(placement), is_shard)});
    }
  }
}

}  // namespace trident
