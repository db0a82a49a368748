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
  Visit& visit = uses_[index];
  visit.weights =
      context.empty({bucket.layout.elements}, bucket.shard.dtype(), Category::communication);
  visit.arriving = bucket.sharing.all_gather(context, bucket.shard, visit.weights, async);
}

void WeightGathering::hold(Context& context, const std::vector<std::size_t>& buckets) {
  for (const std::size_t index : buckets) {
    Visit& visit = uses_[index];
    visit.wanted = false;
    if (++visit.holders > 1) continue;
    if (!visit.weights) start(context, index, Async::no);
    visit.arriving.wait(context);
    visit.arriving = {};
    bind_weights(buckets_.buckets()[index].layout, visit.weights);
  }
}

void WeightGathering::release(const std::vector<std::size_t>& buckets) {
  for (const std::size_t index : buckets) {
    Visit& visit = uses_[index];
    if (--visit.holders > 0) continue;
    bind_weights(buckets_.buckets()[index].layout, {});
    if (!visit.wanted) visit.weights = Tensor();
  }
}

void WeightGathering::prefetch(Context& context, const std::vector<std::size_t>& buckets) {
  std::int64_t ahead = 0;
  for (const std::size_t index : buckets) {
    Visit& visit = uses_[index];
    if (!visit.weights) {
      ahead += buckets_.buckets()[index].layout.elements;
      if (!overlap_ || ahead > prefetch_elements_) continue;
      start(context, index, Async::yes);
    }
    visit.wanted = true;
  }
}

void WeightGathering::forget(Context& context) {
  for (Visit& visit : uses_) {
    if (!visit.wanted || visit.holders > 0) continue;
    visit.arriving.wait(context);
    visit = {};
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
