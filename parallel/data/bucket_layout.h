// How parameters lie in flat buckets, and which part of a bucket a data-parallel rank owns. Pure
// arithmetic: the plan uses it before anything is allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/parameter.h"

namespace trident {

// Parameters start, and ZeRO's shards are cut, at multiples of this many elements, so that sums
// over blocks of a parameter are the same whoever holds them.
inline constexpr std::int64_t bucket_block = 256;

struct BucketEntry {
  std::shared_ptr<Parameter> parameter;
  std::int64_t offset = 0, numel = 0;  // elements within the bucket
};

struct BucketLayout {
  std::vector<BucketEntry> entries;
  std::int64_t elements = 0;  // with padding; a multiple of parts · bucket_block
  std::int64_t shard(int parts) const { return elements / parts; }
};

// A stretch of one parameter inside a range of a bucket.
struct ParameterSegment {
  const Parameter* parameter = nullptr;
  std::int64_t begin = 0, count = 0;  // elements within the bucket
};

// Fills buckets in the order given until the next parameter would exceed `bucket_elements` (a
// larger parameter is a bucket of its own). Tied parameters come last, each in a bucket of its own:
// their gradients are complete only after the embedding group's sum.
std::vector<BucketLayout> layout_buckets(const std::vector<std::shared_ptr<Parameter>>& parameters,
                                         std::int64_t bucket_elements, int parts);

// The stretches of parameters inside [begin, begin + count) of a bucket.
std::vector<ParameterSegment> segments(const BucketLayout&, std::int64_t begin, std::int64_t count);

}  // namespace trident
