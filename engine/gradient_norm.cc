#include "engine/gradient_norm.h"

#include <algorithm>
#include <vector>

#include "core/exact_sum.h"
#include "kernels/elementwise.h"

namespace trident {

Tensor gradient_squares(Context& context, const ParameterBuckets& buckets,
                        const Topology& topology) {
  Tensor sum = context.empty({ExactSum::limbs + 1}, DType::i64, Category::workspace);
  fill(context, sum, 0);
  const auto place_of = [&](Group group) { return topology.place(group); };
  for (const Bucket& bucket : buckets.buckets()) {
    if (bucket.replicas.defined() && bucket.replicas.rank() != 0) continue;
    const auto blocks = [](const ParameterSegment& segment) {
      return (segment.count + bucket_block - 1) / bucket_block;
    };
    const auto [own_begin, own_count] = bucket.layout.own(bucket.sharing.rank());
    std::vector<ParameterSegment> own;
    std::int64_t count = 0;
    for (const ParameterSegment& segment : segments(bucket.layout, own_begin, own_count)) {
      if (!segment.parameter->spec().placement.is_primary(place_of)) continue;
      own.push_back(segment);
      count += blocks(segment);
    }
    if (count == 0) continue;
    // Computes all blocks of a bucket, then adds them: an exact sum is the same in any order.
    const Tensor squares = context.empty({count}, DType::f64, Category::workspace);
    std::vector<SquareSumsArgs> sums;
    std::int64_t at = 0;
    for (const ParameterSegment& segment : own) {
      if (segment.count == 0) continue;
      sums.push_back({.x = bucket.gradient.flat(segment.begin - bucket.begin, segment.count),
                      .out = squares.flat(at, blocks(segment))});
      at += blocks(segment);
    }
    square_sums(context, sums, bucket_block);
    constexpr std::int64_t most = std::int64_t{1} << 27;  // the limit of one exact_sum call
    for (std::int64_t begin = 0; begin < count; begin += most) {
      exact_sum(context, squares.flat(begin, std::min(most, count - begin)), sum);
    }
  }
  return sum;
}

}  // namespace trident
