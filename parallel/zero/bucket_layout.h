// How parameters lie in flat buckets, and which part of a bucket a data-parallel rank owns. Pure
// arithmetic: a plan asks it for every place where one rank was run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/parameter.h"

namespace trident {

// Parameters start, and ZeRO's shards are cut, at multiples of this many elements, so that sums
// over blocks of a parameter are the same whoever holds them.
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
  bool persistent = false;    // weights stay whole in ZeRO stage 3, too
  DataGroups data = {};       // of all its parameters
  int parts = 1;              // ranks of data.shard
  std::int64_t shard() const { return elements / parts; }
  struct Range {
    std::int64_t begin = 0, count = 0;
  };
  // The shard of the rank at `place` of data.shard.
  Range own(int place) const { return {place * shard(), shard()}; }
  // What that rank updates: its shard, or in stage 0 all of the bucket.
  Range updated(int zero_stage, int place) const {
    return zero_stage == 0 ? Range{0, elements} : own(place);
  }
  bool tied() const { return entries.front().parameter->spec().placement.tied; }
  // Uses of its parameters on this rank: 2 for a tied weight with both uses here.
  int uses() const { return entries.front().parameter->uses(); }
};

// A stretch of one parameter inside a range of a bucket.
struct ParameterSegment {
  const Parameter* parameter = nullptr;
  std::int64_t begin = 0, count = 0;  // elements within the bucket
  std::int64_t offset = 0;            // of the parameter within the bucket
};

struct BucketLimits {
  std::int64_t elements = 5'000'000;       // a larger parameter is a bucket of its own
  std::int64_t persistence_threshold = 0;  // smaller parameters lie in persistent buckets
  std::vector<MeshAxis> axes = {};         // of the ranks that share; none: a single one
};

// Fills buckets group by group, in the order given, until the next parameter would exceed the
// limit; no bucket spans two groups, parameters below and above the persistence threshold lie
// apart, and so do those that other ranks share (Placement::data). The cuts of a parameter are
// therefore the same in every ZeRO stage and, but for tied ones, wherever its module stands in the
// pipeline. A tied parameter is a bucket of its own.
std::vector<BucketLayout> layout_buckets(const std::vector<ParameterGroup>& groups,
                                         const BucketLimits&);

// The stretches of parameters inside [begin, begin + count) of a bucket.
std::vector<ParameterSegment> segments(const BucketLayout&, std::int64_t begin, std::int64_t count);

// Sums over a group that finds parts of a gradient on each of its ranks (Placement::partial),
// within the same range: elements [begin, begin + count) of the bucket.
struct PartialSum {
  Group group{};
  std::int64_t begin = 0, count = 0;
};
std::vector<PartialSum> partial_sums(const BucketLayout&, std::int64_t begin, std::int64_t count);

}  // namespace trident
