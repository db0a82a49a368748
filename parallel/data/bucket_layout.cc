#include "parallel/data/bucket_layout.h"

#include <algorithm>

namespace trident {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<BucketLayout> layout_buckets(const std::vector<std::shared_ptr<Parameter>>& parameters,
                                         std::int64_t bucket_elements, int parts) {
  std::vector<BucketLayout> buckets;
  bool open = false;
  const auto place = [&](const std::shared_ptr<Parameter>& parameter, bool alone) {
    const std::int64_t numel = parameter->spec().shard.numel();
    if (alone || !open || buckets.back().elements + numel > bucket_elements) buckets.emplace_back();
    open = !alone;
    BucketLayout& bucket = buckets.back();
    bucket.entries.push_back({parameter, bucket.elements, numel});
    bucket.elements += round_up(numel, bucket_block);
  };
  for (const auto& parameter : parameters) {
    if (!parameter->spec().tied) place(parameter, false);
  }
  for (const auto& parameter : parameters) {
    if (parameter->spec().tied) place(parameter, true);
  }
  for (BucketLayout& bucket : buckets) {
    bucket.elements = round_up(bucket.elements, parts * bucket_block);
  }
  return buckets;
}

std::vector<ParameterSegment> segments(const BucketLayout& bucket, std::int64_t begin,
                                       std::int64_t count) {
  std::vector<ParameterSegment> list;
  for (const BucketEntry& entry : bucket.entries) {
    const std::int64_t from = std::max(begin, entry.offset);
    const std::int64_t to = std::min(begin + count, entry.offset + entry.numel);
    if (from < to) list.push_back({entry.parameter.get(), from, to - from});
  }
  return list;
}

}  // namespace trident
