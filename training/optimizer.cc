#include "training/optimizer.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace trident {

std::vector<UpdateRange> update_ranges(const BucketLayout& layout, std::int64_t begin,
                                       std::int64_t count, int rank, int ranks) {
  const std::int64_t shard = layout.shard(ranks);
  // Where [from, from + n) of the bucket meets an entry, counted within the entry.
  const auto meet = [](const BucketEntry& entry, std::int64_t from, std::int64_t n) {
    const std::int64_t first = std::clamp<std::int64_t>(from - entry.offset, 0, entry.numel);
    const std::int64_t end = std::clamp<std::int64_t>(from + n - entry.offset, 0, entry.numel);
    return std::pair(first, end - first);
  };
  std::vector<UpdateRange> ranges;
  for (const BucketEntry& entry : layout.entries) {
    const auto [at, n] = meet(entry, begin, count);
    const auto [own, own_n] = meet(entry, rank * shard, shard);
    ranges.push_back({entry.parameter.get(), at, n, own, own_n});
  }
  return ranges;
}

Placement StateSpec::placement(const Placement& parameter) const {
  if (extent == Extent::elements) return parameter;
  return parameter.along(extent == Extent::rows ? 0 : 1);
}

std::int64_t StateSpec::count(const UpdateRange& range) const {
  if (extent == Extent::elements) return range.count;
  return placement(range.parameter->spec().placement).numel();
}

Optimizer::Optimizer(Context& context, const ParameterBuckets& buckets,
                     std::unique_ptr<UpdateRule> rule, ProcessGroup data, ProcessGroup tensor,
                     bool takes_back)
    : rule_(std::move(rule)), data_(std::move(data)), tensor_(std::move(tensor)) {
  const auto keeps = [&](const Tensor& live) {
    if (!takes_back) return;
    kept_.emplace_back(live, context.empty(live.shape(), DType::f32, Category::optimizer));
  };
  for (const Bucket& bucket : buckets.buckets()) {
    auto& parts = parts_.emplace_back();
    for (const UpdateRange& range :
         update_ranges(bucket.layout, bucket.begin, bucket.count,
                       data_.defined() ? data_.rank() : 0, data_.defined() ? data_.size() : 1)) {
      UpdatePart& part = parts.emplace_back(UpdatePart{.range = range});
      for (const StateSpec& state : rule_->states(range.parameter->spec())) {
        part.state.push_back(context.empty({state.count(range)}, state.dtype, Category::optimizer));
        fill(context, part.state.back(), state.initial);
        keeps(part.state.back());
      }
    }
    keeps(bucket.master);
  }
}

void Optimizer::keep(Context& context) {
  for (const auto& [live, copied] : kept_) copy(context, live, copied);
}

void Optimizer::take_back(Context& context, ParameterBuckets& buckets) {
  --steps_;
  for (const auto& [live, copied] : kept_) copy(context, copied, live);
  if (buckets.dtype() == DType::f32) return;
  // Rounded as every update rounds them.
  for (const Bucket& bucket : buckets.buckets()) copy(context, bucket.master, bucket.shard);
}

void Optimizer::step(Context& context, ParameterBuckets& buckets, float learning_rate,
                     float gradient_scale) {
  ++steps_;
  const bool mixed = buckets.dtype() != DType::f32;
  std::vector<UpdatePart> all;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Bucket& bucket = buckets.buckets()[i];
    for (std::size_t p = 0; p < parts_[i].size(); ++p) {
      UpdatePart& part = all.emplace_back(parts_[i][p]);
      const std::int64_t at =
          part.range.count == 0 ? 0
                                : bucket.layout.entries[p].offset + part.range.begin - bucket.begin;
      part.weight = bucket.master.flat(at, part.range.count);
      part.gradient = bucket.gradient.flat(at, part.range.count);
      if (mixed) part.model_weight = bucket.shard.flat(at, part.range.count);
    }
  }
  rule_->update(context, all,
                {.learning_rate = learning_rate,
                 .gradient_scale = gradient_scale,
                 .step = steps_,
                 .data = data_,
                 .tensor = tensor_});
}

}  // namespace trident
