#include "parallel/zero/weight_gathering.h"

#include <set>

namespace trident {

WeightGathering::WeightGathering(ParameterBuckets& buckets, bool overlap,
                                 std::int64_t prefetch_elements)
    : buckets_(buckets),
      overlap_(overlap),
      prefetch_elements_(prefetch_elements),
      uses_(buckets.buckets().size()) {}

std::vector<std::size_t> WeightGathering::buckets_of(
    const std::vector<std::shared_ptr<Parameter>>& parameters) const {
  std::set<std::size_t> list;
  for (const auto& parameter : parameters) {
    const std::size_t bucket = buckets_.bucket_of(*parameter);
    if (buckets_.buckets()[bucket].gathered()) list.insert(bucket);
  }
  return {list.begin(), list.end()};
}

void WeightGathering::start(Context& context, std::size_t index, Async async) {
  const Bucket& bucket = buckets_.buckets()[index];
  GatheredUse& use = uses_[index];
  use.weights =
      context.empty({bucket.layout.elements}, bucket.shard.dtype(), Category::communication);
  use.arriving = bucket.sharing.all_gather(context, bucket.shard, use.weights, async);
}

void WeightGathering::hold(Context& context, const std::vector<std::size_t>& buckets) {
  for (const std::size_t index : buckets) {
    GatheredUse& use = uses_[index];
    use.wanted = false;
    if (++use.holders > 1) continue;
    if (!use.weights) start(context, index, Async::no);
    use.arriving.wait(context);
    use.arriving = {};
    bind_weights(buckets_.buckets()[index].layout, use.weights);
  }
}

void WeightGathering::release(const std::vector<std::size_t>& buckets) {
  for (const std::size_t index : buckets) {
    GatheredUse& use = uses_[index];
    if (--use.holders > 0) continue;
    bind_weights(buckets_.buckets()[index].layout, {});
    if (!use.wanted) use.weights = Tensor();
  }
}

void WeightGathering::prefetch(Context& context, const std::vector<std::size_t>& buckets) {
  std::int64_t ahead = 0;
  for (const std::size_t index : buckets) {
    GatheredUse& use = uses_[index];
    if (!use.weights) {
      ahead += buckets_.buckets()[index].layout.elements;
      if (!overlap_ || ahead > prefetch_elements_) continue;
      start(context, index, Async::yes);
    }
    use.wanted = true;
  }
}

void WeightGathering::forget(Context& context) {
  for (GatheredUse& use : uses_) {
    if (!use.wanted || use.holders > 0) continue;
    use.arriving.wait(context);
    use = {};
  }
}

void WeightGathering::gather_updated(Context& context) {
  if (buckets_.zero_stage() == 0) return;
  std::vector<Work> pending;
  for (const Bucket& bucket : buckets_.buckets()) {
    if (bucket.gathered() || !bucket.shared()) continue;
    pending.push_back(bucket.sharing.all_gather(context, bucket.shard, bucket.weights,
                                                overlap_ ? Async::yes : Async::no));
  }
  for (const Work& work : pending) work.wait(context);
}

}  // namespace trident
