#include "parallel/zero/weight_stash.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "kernels/elementwise.h"

namespace trident {

WeightVersion WeightStash::take(std::int64_t microbatch) {
  WeightVersion version =
      batch_ == 0 ? live_ : first_ + std::max<std::int64_t>(0, microbatch / batch_ - 1);
  if (!begun_.empty()) {
    version = begun_.front();
    begun_.pop_front();
  }
  taken_[microbatch] = version;
  ++users_[version];
  return version;
}

void WeightStash::release(std::int64_t microbatch) {
  const auto found = taken_.find(microbatch);
  const WeightVersion version = found->second;
  taken_.erase(found);
  // Under 2BW later micro-batches of the batch still need the version; before_update() drops it.
  if (--users_[version] == 0 && batch_ == 0) drop(version);
}

void WeightStash::drop(WeightVersion version) {
  users_.erase(version);
  if (kept_.erase(version) == 0) return;
  for (const Bucket& bucket : buckets_.with_buffers()) {
    for (const BucketEntry& entry : bucket.layout.entries) entry.parameter->unstash(version);
  }
}

void WeightStash::keep(WeightVersion version, const std::vector<Tensor>& copies) {
  kept_[version] = copies;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    for (const BucketEntry& entry : buckets_.with_buffers()[i].layout.entries) {
      entry.parameter->stash(version, copies[i]
                                          .flat(entry.offset, entry.numel)
                                          .view(entry.parameter->spec().placement.local()));
    }
  }
}

void WeightStash::resume_after(Context& context, WeightVersion updates, std::int64_t next,
                               const std::vector<std::int64_t>& ages) {
  live_ = updates;
  std::set<std::int64_t> wanted;
  if (batch_ == 0) {
    for (const std::int64_t age : ages) begun_.push_back(updates - age);
    wanted.insert(ages.begin(), ages.end());
    wanted.erase(0);
  } else {
    first_ = updates - next / batch_;
    // The rest of the batch uses the version of its micro-batches in flight.
    if (next > 0) wanted = {1};
  }
  for (const std::int64_t age : wanted) {
    std::vector<Tensor> copies;
    for (const Bucket& bucket : buckets_.with_buffers()) {
      copies.push_back(
          context.empty(bucket.weights.shape(), bucket.weights.dtype(), Category::parameter));
      fill(context, copies.back(), 0);  // files hold no padding
    }
    keep(updates - age, copies);
  }
  for (const Bucket& bucket : buckets_.with_buffers()) {
    for (const BucketEntry& entry : bucket.layout.entries) entry.parameter->set_live(live_);
  }
}

void WeightStash::append_state(const Topology& topology, State& into) const {
  for (const auto& [version, copies] : kept_) {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      const Bucket& bucket = buckets_.with_buffers()[i];
      for (const BucketEntry& entry : bucket.layout.entries) {
        const Placement& placement = entry.parameter->spec().placement;
        into.tensors.push_back({.kind = StateKind::stashed,
                                .name = "weight-" + std::to_string(live_ - version),
                                .parameter = entry.parameter.get(),
                                .placement = placement,
                                .begin = 0,
                                .tensor = copies[i].flat(entry.offset, entry.numel),
                                .holder = bucket.holder(topology.holder(placement), false)});
      }
    }
  }
}

void WeightStash::before_update(Context& context) {
  if (batch_ > 0) drop(live_ - 1);  // the version of the completed batch
  const bool needed = batch_ > 0 || users_.contains(live_);
  if (needed) {
    std::vector<Tensor> copies;
    for (const Bucket& bucket : buckets_.with_buffers()) {
      copies.push_back(
          context.empty(bucket.weights.shape(), bucket.weights.dtype(), Category::parameter));
      copy(context, bucket.weights, copies.back());
    }
    keep(live_, copies);
  }
  ++live_;
  for (const Bucket& bucket : buckets_.with_buffers()) {
    for (const BucketEntry& entry : bucket.layout.entries) entry.parameter->set_live(live_);
  }
}

}  // namespace trident
