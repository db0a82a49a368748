#include "parallel/data/weight_stash.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace trident {

WeightVersion WeightStash::take(std::int64_t microbatch) {
  const WeightVersion version =
      batch_ == 0 ? live_ : std::max<std::int64_t>(0, microbatch / batch_ - 1);
  taken_[microbatch] = version;
  ++users_[version];
  return version;
}

void WeightStash::release(std::int64_t microbatch) {
  const auto found = taken_.find(microbatch);
  const WeightVersion version = found->second;
  taken_.erase(found);
  // Under 2BW later micro-batches of the batch still come; before_update() drops.
  if (--users_[version] == 0 && batch_ == 0) drop(version);
}

void WeightStash::drop(WeightVersion version) {
  users_.erase(version);
  if (kept_.erase(version) == 0) return;
  for (const Bucket& bucket : buckets_.buckets()) {
    for (const BucketEntry& entry : bucket.layout.entries) entry.parameter->unstash(version);
  }
}

void WeightStash::before_update(Context& context) {
  if (batch_ > 0) drop(live_ - 1);  // of the batch that is done
  const bool needed = batch_ > 0 || users_.contains(live_);
  for (const Bucket& bucket : buckets_.buckets()) {
    Tensor copied;
    if (needed) {
      copied = context.empty(bucket.weights.shape(), bucket.weights.dtype(), Category::parameter);
      copy(context, bucket.weights, copied);
    }
    for (const BucketEntry& entry : bucket.layout.entries) {
      if (needed) {
        entry.parameter->stash(
            live_,
            copied.flat(entry.offset, entry.numel).view(entry.parameter->spec().placement.local()));
      }
      entry.parameter->set_live(live_ + 1);
    }
  }
  if (needed) kept_[live_] = true;
  ++live_;
}

}  // namespace trident
