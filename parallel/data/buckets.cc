#include "parallel/data/buckets.h"

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
                                   const BucketOptions& options)
    : options_(options) {
  const int parts = options.limits.parts;
  for (BucketLayout& layout : layout_buckets(groups, options.limits)) {
    Bucket bucket;
    const bool sharded = options.zero_stage >= 1;
    bucket.begin = sharded ? options.data_rank * layout.shard(parts) : 0;
    bucket.count = sharded ? layout.shard(parts) : layout.elements;
    if (options.zero_stage == 3 && !layout.persistent && parts > 1) {
      bucket.shard = context.empty({bucket.count}, options.dtype, Category::parameter);
      fill(context, bucket.shard, 0);
    } else {
      bucket.weights = context.empty({layout.elements}, options.dtype, Category::parameter);
      fill(context, bucket.weights, 0);
      bucket.shard = bucket.weights.flat(bucket.begin, bucket.count);
      bind_weights(layout, bucket.weights);
    }
    if (options.dtype == DType::f32) {
      bucket.master = bucket.shard;
    } else if (options.master) {
      bucket.master = context.empty({bucket.count}, DType::f32, Category::optimizer);
      fill(context, bucket.master, 0);
    }
    for (const BucketEntry& entry : layout.entries) {
      bucket_of_[entry.parameter.get()] = buckets_.size();
    }
    bucket.layout = std::move(layout);
    buckets_.push_back(std::move(bucket));
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
    if (bucket.master && options_.dtype != DType::f32) {
      copy(context, part, bucket.master.flat(local, count));
    }
  }
}

}  // namespace trident
