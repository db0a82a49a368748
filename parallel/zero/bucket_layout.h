// The layout of parameters in flat buckets, and the part of a bucket that a data-parallel rank
// owns. It is pure arithmetic: a plan runs one rank and asks the layout for every place.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/parameter.h"

namespace trident {

// Parameters start, and ZeRO's shards are split, at multiples of this many elements. Sums over
// blocks of a parameter are therefore the same whichever rank holds them.
inline constexpr std::int64_t bucket_block = 64;

// Parameters whose gradients are complete at the same time, in backward's order.
using ParameterGroup = std::vector<std::shared_ptr<Parameter>>;

struct BucketEntry {
  std::shared_ptr<Parameter> parameter;
  std::int64_t offset = 0, numel = 0;  // elements within the bucket
};

struct BucketLayout {
  std::vector<BucketEntry> entries;
  std::int64_t elements = 0;  // with padding; a multiple of parts · bucket_block
  bool persistent = false;    // weights stay gathered in ZeRO stage 3, too
  DataGroups data = {};       // of all its parameters
  bool keeps_fp32 = false;    // its parameters do, whatever the dtype of the model
  int parts = 1;              // ranks of data.shard
  std::int64_t shard() const { return elements / parts; }
  struct Range {
    std::int64_t begin = 0, count = 0;
  };
  // The shard of the rank at `place` of data.shard.
  Range own(int place) const { return {place * shard(), shard()}; }
  // The range that this rank updates: its shard, or in stage 0 the complete bucket.
  Range updated(int zero_stage, int place) const {
    return zero_stage == 0 ? Range{0, elements} : own(place);
  }
  bool tied() const { return entries.front().parameter->spec().placement.tied; }
  // The number of uses of its parameters on this rank: several for a tied weight.
  int uses() const { return entries.front().parameter->uses(); }
};

// A contiguous range of one parameter inside a range of a bucket.
struct ParameterSegment {
  const Parameter* parameter = nullptr;
  std::int64_t begin = 0, count = 0;  // elements within the bucket
  std::int64_t offset = 0;            // of the parameter within the bucket
};

struct BucketLimits {
  std::int64_t elements = 5'000'000;       // a larger parameter is a bucket of its own
  std::int64_t persistence_threshold = 0;  // smaller parameters lie in persistent buckets
  std::vector<MeshAxis> axes = {};         // of the ranks that share; empty: a single rank
};

// Fills buckets group by group, in the order given, until the next parameter would exceed the
// limit. No bucket spans two groups. Parameters below and above the persistence threshold are in
// different buckets, and so are parameters that other ranks share (Placement::data) and those that
// stay fp32. The shards of a parameter are therefore the same in every ZeRO stage and, except for
// tied ones, wherever its module stands in the pipeline. A tied parameter is a bucket of its own.
std::vector<BucketLayout> layout_buckets(const std::vector<ParameterGroup>& groups,
                                         const BucketLimits&);

// The contiguous ranges of parameters inside [begin, begin + count) of a bucket.
std::vector<ParameterSegment> segments(const BucketLayout&, std::int64_t begin, std::int64_t count);

// A sum over a group whose ranks each have a partial gradient (Placement::partial): elements
// [begin, begin + count) of the bucket. partial_sums() lists the sums within a range.
struct PartialSum {
  Group group{};
  std::int64_t begin = 0, count = 0;
};
std::vector<PartialSum> partial_sums(const BucketLayout&, std::int64_t begin, std::int64_t count);

}  // namespace trident
