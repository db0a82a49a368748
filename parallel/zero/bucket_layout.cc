#include "parallel/zero/bucket_layout.h"

#include <algorithm>

namespace trident {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<BucketLayout> layout_buckets(const std::vector<ParameterGroup>& groups,
                                         const BucketLimits& limits) {
  std::vector<BucketLayout> buckets;
  bool open = false;
  const auto place = [&](const std::shared_ptr<Parameter>& parameter, bool persistent) {
    const std::int64_t numel = parameter->spec().placement.numel();
    const bool alone = parameter->spec().placement.tied;
    const DataGroups data = parameter->spec().placement.data;
    const bool keeps_fp32 = parameter->spec().keeps_fp32;
    if (alone || !open || buckets.back().elements + numel > limits.elements ||
        buckets.back().data != data || buckets.back().keeps_fp32 != keeps_fp32) {
      buckets.push_back({.persistent = persistent,
                         .data = data,
                         .keeps_fp32 = keeps_fp32,
                         .parts = static_cast<int>(group_size(limits.axes, data.shard))});
    }
    open = !alone;
    BucketLayout& bucket = buckets.back();
    bucket.entries.push_back({parameter, bucket.elements, numel});
    bucket.elements += round_up(numel, bucket_block);
  };
  for (const ParameterGroup& group : groups) {
    for (const bool persistent : {false, true}) {
      open = false;
      for (const auto& parameter : group) {
        const bool small = parameter->spec().placement.numel() < limits.persistence_threshold;
        if (small == persistent) place(parameter, persistent);
      }
    }
  }
  for (BucketLayout& bucket : buckets) {
    bucket.elements = round_up(bucket.elements, bucket.parts * bucket_block);
  }
  return buckets;
}

std::vector<ParameterSegment> segments(const BucketLayout& bucket, std::int64_t begin,
                                       std::int64_t count) {
  std::vector<ParameterSegment> list;
  for (const BucketEntry& entry : bucket.entries) {
    const std::int64_t from = std::max(begin, entry.offset);
    const std::int64_t to = std::min(begin + count, entry.offset + entry.numel);
    if (from < to) list.push_back({entry.parameter.get(), from, to - from, entry.offset});
  }
  return list;
}

std::vector<PartialSum> partial_sums(const BucketLayout& bucket, std::int64_t begin,
                                     std::int64_t count) {
  std::vector<PartialSum> list;
  for (const ParameterSegment& segment : segments(bucket, begin, count)) {
    for (const Group group : segment.parameter->spec().placement.partial) {
      list.push_back({group, segment.begin, segment.count});
    }
  }
  return list;
}

}  // namespace trident
